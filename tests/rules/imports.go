// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
)

// Module is the path of this module.
const Module = "github.com/pvrdmad/pvrdmad"

// sys is the one library that public packages may use beside the standard one.
const sys = "golang.org/x/sys/"

// rule says what a package of ours may import of ours. A package without a rule may not exist.
type rule struct {
	// pkg is a package, or with /... a folder and all below it.
	pkg string
	// may lists packages of ours; nil is none.
	may []string
	// anything lifts all limits, those on other people's libraries included.
	anything bool
}

// rules is the house, from the ground floor up. docs/architecture.md draws it.
var rules = []rule{
	{pkg: "ringbuf"},
	{pkg: "guestmem"},
	{pkg: "pvrdma/abi"},
	{pkg: "internal/timerwheel"},
	{pkg: "hostverbs", may: []string{"guestmem"}},
	{pkg: "hostverbs/gsi"},
	{pkg: "hostverbs/soft", may: []string{"hostverbs", "hostverbs/gsi", "guestmem", "ringbuf", "internal/timerwheel"}},
	{pkg: "hostverbs/verbstest", may: []string{"hostverbs", "guestmem"}},
	{pkg: "pvrdma", may: []string{"pvrdma/abi", "hostverbs", "guestmem", "ringbuf", "internal/timerwheel"}},
	{pkg: "vfiouser"},
	{pkg: "vfiouser/internal/...", may: []string{"vfiouser"}},
	{pkg: "vfiouser/examples/...", may: []string{"vfiouser", "guestmem"}},
	{pkg: "pvrdma/pcifn", may: []string{"pvrdma", "pvrdma/abi", "guestmem", "ringbuf", "vfiouser"}},
	// The guest in Go shares no code with the device, so that one misreading of the ABI cannot pass on both sides.
	{pkg: "internal/testguest/...", may: []string{"internal/testguest/..."}},
	{pkg: "internal/...", anything: true},
	{pkg: "cmd/...", anything: true},
	{pkg: "tests/...", anything: true},
}

// mayImport returns why package pkg (relative to the module) must not import path, or "".
func mayImport(pkg, path string) string {
	for _, r := range rules {
		if !matches(r.pkg, pkg) {
			continue
		}
		if r.anything {
			return ""
		}
		own, ours := strings.CutPrefix(path, Module+"/")
		if !ours {
			if !strings.Contains(strings.SplitN(path, "/", 2)[0], ".") || strings.HasPrefix(path, sys) {
				return ""
			}
			return fmt.Sprintf("%s imports %s: a public package uses the standard library and %s alone", pkg, path, sys)
		}
		for _, m := range r.may {
			if matches(m, own) {
				return ""
			}
		}
		return fmt.Sprintf("%s imports %s: imports point down, and it may use only %v", pkg, own, r.may)
	}
	return fmt.Sprintf("package %s has no import rule: add one to tests/rules and to docs/architecture.md", pkg)
}

func matches(pattern, pkg string) bool {
	if folder, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == folder || strings.HasPrefix(pkg, folder+"/")
	}
	return pattern == pkg
}

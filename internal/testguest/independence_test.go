// SPDX-License-Identifier: Apache-2.0

package testguest_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A mistake that guest and device share would pass every test between them.
func TestTheGuestSharesNoCodeWithTheDevice(t *testing.T) {
	const module, own = "github.com/pvrdmad/pvrdmad/", "github.com/pvrdmad/pvrdmad/internal/testguest"
	out, err := exec.Command("go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, pkg := range strings.Fields(string(out)) {
		if !strings.HasPrefix(pkg, module) {
			continue
		}
		found++
		if !strings.HasPrefix(pkg, own) {
			t.Errorf("it depends on %s", pkg)
		}
	}
	if found < 6 {
		t.Errorf("found %d packages of the guest, want its six", found)
	}
}

// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"strings"
	"testing"
)

func TestEveryFileKeepsTheRulesOfTheHouse(t *testing.T) {
	all, err := sources(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("found %d Go files: is the repository's root where this test thinks?", len(all))
	}
	for _, s := range all {
		for _, fault := range check(s) {
			t.Error(fault)
		}
	}
	for _, fault := range packageComments(all) {
		t.Error(fault)
	}
}

func TestAPlantedFaultIsFound(t *testing.T) {
	const head = license + "\n\n// Package p is.\npackage p\n\n"
	tests := []struct {
		name, path, text, want string
	}{
		{"a door that imports the device", "vfiouser/x.go", head + `import "` + Module + `/pvrdma"`, "imports point down"},
		{"the core that imports a door", "pvrdma/x.go", head + `import "` + Module + `/vfiouser"`, "imports point down"},
		{"the core that imports its own function", "pvrdma/x.go", head + `import "` + Module + `/pvrdma/pcifn"`, "imports point down"},
		{"a guest that shares the device's codecs", "internal/testguest/x.go", head + `import "` + Module + `/pvrdma/abi"`, "imports point down"},
		{"a public package that logs", "pvrdma/x.go", head + `import "github.com/hashicorp/go-hclog"`, "standard library"},
		{"a package nobody planned", "misc/x.go", head + `import "fmt"`, "no import rule"},
		{"unsafe in an ordinary file", "ringbuf/x.go", head + `import "unsafe"`, "*_unsafe.go"},
		{"a file without a licence", "ringbuf/x.go", "// Package p is.\npackage p\n", "does not begin"},
		{"an init function", "ringbuf/x.go", head + "func init() {}\n", "init function"},
		{"a long function", "ringbuf/x.go", head + "func f() {\n" + strings.Repeat("\t_ = 0\n", 90) + "}\n", "function f has"},
		{"a long file", "ringbuf/x.go", head + strings.Repeat("// x\n", 501), "lines, more than"},
		{
			"a skip around a property", "ringbuf/x_test.go", head +
				"func TestX(t *testing.T) { f(func(t *rapid.T) { f(func(t *testing.T) { t.SkipNow() }) }) }\n", "skips a test",
		},
		{"a test that skips", "ringbuf/x_test.go", head + "import \"testing\"\n\nfunc TestX(t *testing.T) { t.Skip() }\n", "skips a test"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := parse(tt.path, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(check(s), "\n"); !strings.Contains(got, tt.want) {
				t.Errorf("faults are %q, want one with %q", got, tt.want)
			}
		})
	}
}

func TestWhatIsAllowedPasses(t *testing.T) {
	const head = license + "\n\n// Package p is.\npackage p\n\n"
	for _, tt := range []struct{ name, path, text string }{
		{"the core that uses the engine's words", "pvrdma/x.go", head + `import "` + Module + `/hostverbs"`},
		{"unsafe in its own file", "ringbuf/x_unsafe.go", head + `import "unsafe"`},
		{"unsafe in a test's own file", "ringbuf/x_unsafe_test.go", head + `import "unsafe"`},
		{"a command with a library", "cmd/pvrdmad/x.go", head + `import "github.com/spf13/cobra"`},
		{
			"a property that passes over a step", "ringbuf/x_test.go", head +
				"import (\n\t\"testing\"\n\n\t\"pgregory.net/rapid\"\n)\n\n" +
				"func TestX(t *testing.T) { rapid.Check(t, func(t *rapid.T) { t.Skip() }) }\n",
		},
		{"a public package with system calls", "ringbuf/x.go", head + `import "golang.org/x/sys/unix"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := parse(tt.path, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if faults := check(s); len(faults) != 0 {
				t.Errorf("faults are %v, want none", faults)
			}
		})
	}
}

func TestAPackageWithoutACommentIsFound(t *testing.T) {
	s, err := parse("ringbuf/x.go", license+"\n\npackage ringbuf\n")
	if err != nil {
		t.Fatal(err)
	}
	if faults := packageComments([]*source{s}); len(faults) != 1 {
		t.Errorf("faults are %v, want one", faults)
	}
}

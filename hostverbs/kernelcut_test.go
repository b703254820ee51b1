// SPDX-License-Identifier: Apache-2.0

package hostverbs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/linuxsource"
)

// kernel is the program testdata/statetable.c with the kernel's own table and function in it.
type kernel struct{ path string }

// cuts are the pieces of the kernel's source that go into it. Each is there exactly once, or the test fails.
var cuts = []struct {
	into, from, what string
}{
	{"words.h", "include/rdma/ib_verbs.h", `enum ib_qp_state \{\n[^}]*\n\};\n`},
	{"words.h", "include/rdma/ib_verbs.h", `enum ib_qp_type \{\n[^}]*\n\};\n`},
	{"words.h", "include/rdma/ib_verbs.h", `enum ib_qp_attr_mask \{\n[^}]*\n\};\n`},
	{"table.h", "drivers/infiniband/core/verbs.c", `static const struct \{\n(?:\t.*\n)*\} qp_state_table\[.*\] = \{\n(?:\t.*\n|\n)*\};\n`},
	{"table.h", "drivers/infiniband/core/verbs.c", `bool ib_modify_qp_is_ok\((?:[^)]*\n?)*\)\n\{\n(?:\t.*\n|\n)*\}\n`},
}

// cutKernel returns the pieces by the file that they go into.
func cutKernel(tree string) (map[string]string, error) {
	pieces := map[string]string{}
	for _, c := range cuts {
		text, err := os.ReadFile(filepath.Join(tree, c.from))
		if err != nil {
			return nil, err
		}
		found := regexp.MustCompile(`(?m)^`+c.what).FindAllString(string(text), -1)
		if len(found) != 1 {
			return nil, fmt.Errorf("%s has %d pieces like %s, want 1", c.from, len(found), c.what)
		}
		pieces[c.into] += found[0] + "\n"
	}
	return pieces, nil
}

// buildKernel cuts the pieces out of the kernel's source, lets change rewrite them, and compiles the program.
func buildKernel(t *testing.T, change func(piece string) string) kernel {
	t.Helper()
	tree, err := linuxsource.Tree()
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := cutKernel(tree)
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`(?m)^\t(IB_QP\w*)`).FindAllStringSubmatch(pieces["words.h"], -1)
	pieces["words.h"] += "#define WORDS"
	for _, w := range words {
		pieces["words.h"] += " WORD(" + w[1] + ")"
	}
	dir := t.TempDir()
	for name, text := range pieces {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(change(text)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := kernel{filepath.Join(dir, "statetable")}
	cmd := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-I", dir, "-idirafter", filepath.Join(tree, "include/uapi"),
		"-o", k.path, "testdata/statetable.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s\nnext: apt-get install gcc libc6-dev linux-libc-dev", cmd, err, out)
	}
	return k
}

// unchanged leaves the kernel's source as it is.
func unchanged(piece string) string { return piece }

// words returns the kernel's enumerators with their values.
func (k kernel) words(t *testing.T) map[string]uint32 {
	t.Helper()
	out, err := exec.Command(k.path, "words").Output()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]uint32{}
	for line := range strings.Lines(string(out)) {
		var name string
		var value uint32
		if _, err := fmt.Sscan(line, &name, &value); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		values[name] = value
	}
	return values
}

func TestASourceWithoutTheStateTableIsAnError(t *testing.T) {
	tree, err := linuxsource.Tree()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, old, instead string }{
		{"include/rdma/ib_verbs.h", "enum ib_qp_attr_mask {", "enum ib_qp_attr_bits {"},
		{"drivers/infiniband/core/verbs.c", "} qp_state_table[", "} states["},
		{"drivers/infiniband/core/verbs.c", "\nbool ib_modify_qp_is_ok(", "\nint ib_modify_qp_is_ok("},
	} {
		elsewhere := t.TempDir()
		for _, name := range []string{"include/rdma/ib_verbs.h", "drivers/infiniband/core/verbs.c"} {
			text, err := os.ReadFile(filepath.Join(tree, name))
			if err != nil {
				t.Fatal(err)
			}
			if name == c.from {
				text = bytes.Replace(text, []byte(c.old), []byte(c.instead), 1)
			}
			if err := os.MkdirAll(filepath.Join(elsewhere, filepath.Dir(name)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(elsewhere, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := cutKernel(elsewhere); err == nil || !strings.Contains(err.Error(), c.from) {
			t.Errorf("without %q: got %v, want an error that names %s", c.old, err, c.from)
		}
	}
}

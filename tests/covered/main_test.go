// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// full is a profile in which every file that is looked at has ten statements, all covered.
func full() string {
	var b strings.Builder
	b.WriteString("mode: atomic\n")
	for _, p := range decoders {
		b.WriteString(module + strings.ReplaceAll(p, "*", "x") + ":1.1,2.2 10 7\n")
	}
	return b.String()
}

func TestAProfileIsJudgedByItsStatements(t *testing.T) {
	const uncovered = module + "pvrdma/cmd_cq.go:1.1,2.2 100 0\n"
	for _, c := range []struct{ name, profile, want string }{
		{"all is covered", full(), ""},
		{"much is not", full() + uncovered, "want 90 %"},
		{"covered by one of two packages", full() + uncovered + strings.Replace(uncovered, " 0\n", " 1\n", 1), ""},
		{"other files do not count", full() + module + "vfiouser/wire.go:1.1,2.2 1000 0\n", ""},
		{"a file is gone", strings.Replace(full(), "pvrdma/wqe.go", "pvrdma/wr.go", 1), "no file pvrdma/wqe.go"},
		{"no profile at all", "what is this", "no block of a profile"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "profile")
			if err := os.WriteFile(file, []byte(c.profile), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := run(&out, file, 90)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the verdict is %v, want one with %q; the output:\n%s", err, c.want, &out)
			}
		})
	}
}

func TestEveryFileThatIsLookedAtExists(t *testing.T) {
	for _, p := range decoders {
		if found, err := filepath.Glob(filepath.Join("../..", p)); err != nil || len(found) == 0 {
			t.Errorf("no file %s: %v", p, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAnInstallationHasWhatItsUnitStartsAndKeepsWhatIsConfigured installs twice, the second time over a configuration that was
// edited.
func TestAnInstallationHasWhatItsUnitStartsAndKeepsWhatIsConfigured(t *testing.T) {
	dir := t.TempDir()
	install := func() {
		t.Helper()
		// What there is to build is built elsewhere: the checkout stays as it is.
		cmd := exec.Command("make", "--no-print-directory", "install", "DESTDIR="+dir, "BIN="+filepath.Join(dir, "built"))
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make install: %v\n%s", err, out)
		}
	}
	install()
	unit, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system/pvrdmad.service"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`/(?:usr|etc)/[\w./-]+`).FindAllString(string(unit), -1)
	if len(named) < 2 {
		t.Fatalf("the unit names %q: does this test still read it?", named)
	}
	// The manual says where the example is.
	for line := range strings.Lines(read(t, "docs/operations.md")) {
		if strings.HasPrefix(line, "cp ") {
			named = append(named, strings.Fields(line)[1], filepath.Dir(strings.Fields(line)[2]))
		}
	}
	for _, path := range named {
		if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
			t.Errorf("the unit or the manual names what is not installed: %v", err)
		}
	}

	config := filepath.Join(dir, "etc/pvrdmad/pvrdmad.toml")
	if err := os.WriteFile(config, []byte("workers = 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	install()
	if text, err := os.ReadFile(config); err != nil || string(text) != "workers = 3\n" {
		t.Errorf("the configuration is now %q, %v", text, err)
	}
}

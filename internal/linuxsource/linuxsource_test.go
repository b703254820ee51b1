// SPDX-License-Identifier: Apache-2.0

package linuxsource

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheSourceIsFoundAgainWithoutADownload(t *testing.T) {
	tree, err := find("")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", withoutApt(t))
	again, err := find("")
	if err != nil || again != tree {
		t.Errorf("got %q, %v; want %q once more", again, err, tree)
	}
}

// withoutApt returns a PATH with what a look into the cache needs, and no apt-get.
func withoutApt(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, tool := range []string{"sh", "cksum", "cut"} {
		if err := os.Symlink("/usr/bin/"+tool, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestATreeThatLacksAFileIsRefusedWithWhatToDo(t *testing.T) {
	_, err := find(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "pvrdma_dev_api.h") || !strings.Contains(err.Error(), Env) {
		t.Errorf("got %v, want an error that names the file and %s", err, Env)
	}
}

func TestAMachineWithoutAptIsToldWhatIsMissing(t *testing.T) {
	t.Setenv("PVRDMAD_CACHE", t.TempDir())
	t.Setenv("PATH", withoutApt(t))
	_, err := find("")
	if err == nil || !strings.Contains(err.Error(), "apt-get is missing") || !strings.Contains(err.Error(), Env) {
		t.Errorf("got %v, want an error that says what is missing", err)
	}
}

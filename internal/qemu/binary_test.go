// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fake writes an executable that answers as a QEMU would.
func fake(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), Command)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

const answers = `case "$*" in
--version) echo 'QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)'; echo 'Copyright (c) 2003-2026';;
"-machine none -device help") echo 'Network devices:'; echo 'name "vmxnet3", bus PCI, desc "VMWare"'
echo; echo 'Misc devices:'; echo 'name "vfio-user-pci", bus PCI, desc "VFIO over socket"';;
*) exit 1;;
esac
`

func TestAQEMUIsAskedWhatItIs(t *testing.T) {
	path := fake(t, answers)
	got, err := Find(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	want := Binary{Path: path, Version: Version{11, 1, 3}, VfioUserPCI: true, VMXNET3: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("binary differs (-want +got):\n%s", diff)
	}
}

func TestTheQEMUOnThePathIsTheDefault(t *testing.T) {
	path := fake(t, answers)
	t.Setenv("PATH", filepath.Dir(path)+":"+os.Getenv("PATH"))
	got, err := Find(context.Background(), "")
	if err != nil || got.Path != path {
		t.Errorf("found %q, %v; want %q", got.Path, err, path)
	}
}

func TestADeviceThatOnlyHasANameLikeItIsNotIt(t *testing.T) {
	got, err := Find(context.Background(), fake(t, strings.ReplaceAll(answers, `"vfio-user-pci"`, `"vfio-user-pci-x"`)))
	if err != nil || got.VfioUserPCI || !got.VMXNET3 {
		t.Errorf("got %+v, %v; want vmxnet3 alone", got, err)
	}
}

func TestWhatDoesNotAnswerLikeAQEMUIsAnError(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"no version":     {"echo hello", `no version in "hello"`},
		"fails":          {"echo broken >&2; exit 3", "exit status 3: broken"},
		"fails at help":  {"case $1 in --version) echo version 1.2.3;; *) exit 1;; esac", "-device help: exit status 1"},
		"endless answer": {"exec yes", "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if name == "endless answer" {
				ctx, cancel = context.WithTimeout(ctx, 200e6)
				defer cancel()
			}
			_, err := Find(ctx, fake(t, tt.script))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNoQEMUIsNotFound(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Find(context.Background(), ""); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v, want exec.ErrNotFound", err)
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	ordered := []Version{{7, 2, 0}, {10, 0, 9}, {10, 1, 0}, {10, 1, 1}, {11, 0, 0}}
	for i, a := range ordered {
		for j, b := range ordered {
			if a.Less(b) != (i < j) {
				t.Errorf("%v.Less(%v) = %v", a, b, a.Less(b))
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

func TestALaneWithoutAWorkingQEMUFailsByName(t *testing.T) {
	t.Setenv("PVRDMAD_QEMU", "/bin/false")
	broken, err := harness.LoadImages(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	_, err = harness.Boot(t.Context(), harness.Config{Name: "one", Number: 1, Images: broken})

	for _, want := range []string{"vm lane (row " + images.Row + ")", "/bin/false", "exit status 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("boot with /bin/false as QEMU: %v, want an error that says %q", err, want)
		}
	}
}

func TestATruncatedImageFailsTheLaneAndIsNamed(t *testing.T) {
	for name, image := range map[string]string{
		"root file system": images.RootFS,
		"initramfs":        images.Initrd,
		"kernel":           images.Kernel,
		"QEMU":             images.QEMU,
	} {
		t.Run(name, func(t *testing.T) {
			cache := linkedCache(t)
			victim := filepath.Join(cache, "vm", filepath.Base(filepath.Dir(filepath.Dir(image))), "image", filepath.Base(image))
			truncateCopy(t, victim)
			cmd := exec.Command("images/images", "env")
			cmd.Env = append(os.Environ(), "PVRDMAD_CACHE="+cache)

			out, err := cmd.CombinedOutput()

			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("images env with a truncated %s: %v, want a failure; it said:\n%s", name, err, out)
			}
			for _, want := range []string{"vm lane (row " + images.Row + ")", victim, "rm -rf"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("images env says %q, want it to say %q", out, want)
				}
			}
		})
	}
}

// linkedCache is a cache of hard links to the real one's images.
func linkedCache(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(imageCache()), "test-cache")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, image := range []string{images.QEMU, images.RootFS, images.Initrd} {
		piece := filepath.Dir(filepath.Dir(image))
		to := filepath.Join(dir, "vm", filepath.Base(piece))
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-al", piece+"/image", piece+"/SUMS", to).CombinedOutput(); err != nil {
			t.Fatalf("link %s: %v: %s", piece, err, out)
		}
	}
	return dir
}

// imageCache is the directory of all pieces, .../vm/PIECE/image/FILE.
func imageCache() string { return filepath.Dir(filepath.Dir(filepath.Dir(images.RootFS))) }

// truncateCopy gives the file a shorter body of its own; the original behind the link stays whole.
func truncateCopy(t *testing.T, path string) {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, body[:len(body)/2], 0o755); err != nil {
		t.Fatal(err)
	}
}

// helperEnv makes this test binary a process which boots a guest, says its QEMU's number and waits.
const helperEnv = "PVRDMAD_VM_TEST_HELPER"

func helper() int {
	guest, err := harness.Launch(context.Background(), harness.Config{Name: "helper", Number: 9, Images: images})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("pid", guest.PID())
	select {}
}

func TestQEMUDiesWithTheHarness(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
	if err != nil || syscall.Kill(pid, 0) != nil {
		t.Fatalf("helper says %q, which is no process (%v)", line, err)
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = cmd.Wait() // killed, as it should be
	for end := time.Now().Add(harness.Slow * 5 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("QEMU, process %d, lives on without its harness", pid)
		}
	}
}

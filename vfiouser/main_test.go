// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	// The runtime opens its own file descriptors with the first socket; they are not leaks.
	if l, err := net.Listen("unix", ""); err == nil {
		_ = l.Close()
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for something that has to happen.
const patience = time.Minute

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting: %s", what)
		}
	}
}

// countFDs returns the number of this process's open file descriptors.
func countFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// checkFDs makes a test fail that leaves a file descriptor open.
func checkFDs(t testing.TB) {
	t.Helper()
	before := countFDs(t)
	t.Cleanup(func() {
		eventually(t, "all file descriptors are closed", func() bool { return countFDs(t) <= before })
	})
}

// newEventFD returns an eventfd that is closed with the test.
func newEventFD(t testing.TB) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// newMemFD returns a memory file that is closed with the test.
func newMemFD(t testing.TB, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

// sameFile says whether two file descriptors are of one file.
func sameFile(t testing.TB, a, b int) bool {
	t.Helper()
	var sa, sb unix.Stat_t
	if err := unix.Fstat(a, &sa); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fstat(b, &sb); err != nil {
		t.Fatal(err)
	}
	return sa.Dev == sb.Dev && sa.Ino == sb.Ino
}

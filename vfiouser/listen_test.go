// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func listenOrFail(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := Listen(path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestASocketHasItsModeAndNothingIsLeftBesideIt(t *testing.T) {
	checkFDs(t)
	dir := t.TempDir()

	listenOrFail(t, filepath.Join(dir, "s"))

	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != "s" {
		t.Fatalf("got %v", entries)
	}
	info, err := entries[0].Info()
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("got mode %v", info.Mode())
	}
}

func TestASocketThatWasLeftBehindIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 3 {
		l := listenOrFail(t, path)
		_ = l.Close() // leaves the path
	}

	listenOrFail(t, path)

	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestWhatAnInterruptedListenLeftBehindIsRemoved(t *testing.T) {
	dir := t.TempDir()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"+newSuffix), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()

	listenOrFail(t, filepath.Join(dir, "s"))

	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v", entries, err)
	}
}

func TestASocketOnWhichSomebodyListensIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first := listenOrFail(t, path)

	_, err := Listen(path, 0o600)

	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "process") {
		t.Errorf("got %v", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := first.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the probe, and this connection
		accepted, err := first.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = accepted.Close()
	}
}

func TestASocketOfAnotherKindIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	other, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	if _, err := Listen(path, 0o600); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
}

func TestAPathThatCannotBeASocketIsRefusedWithAReason(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "t"+newSuffix), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path string
		mode       fs.FileMode
		want       unix.Errno
	}{
		{"nothing", "", 0o600, unix.EINVAL},
		{"an abstract name", "@s", 0o600, unix.EINVAL},
		{"a NUL", "a\x00b", 0o600, unix.EINVAL},
		{"a path too long", "/" + strings.Repeat("x", maxPath), 0o600, unix.ENAMETOOLONG},
		{"a mode that is none", filepath.Join(dir, "s"), fs.ModeSetuid | 0o600, unix.EINVAL},
		{"a file", file, 0o600, unix.EEXIST},
		{"a directory", dir, 0o600, unix.EEXIST},
		{"a file in the way of the new socket", filepath.Join(dir, "t"), 0o600, unix.EEXIST},
		{"a directory that does not exist", filepath.Join(dir, "no", "s"), 0o600, unix.ENOENT},
		{"a directory that is a file", filepath.Join(file, "s"), 0o600, unix.ENOTDIR},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkFDs(t)

			_, err := Listen(tc.path, tc.mode)

			if !errors.Is(err, tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if p, err := os.ReadFile(file); err != nil || string(p) != "precious" {
		t.Errorf("the file has changed: %q, %v", p, err)
	}
}

func TestOfManyThatListenAtOnceOneSucceeds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	_ = listenOrFail(t, path).Close()
	var all sync.WaitGroup
	results := make(chan error, 10)
	for range 10 {
		all.Go(func() {
			l, err := Listen(path, 0o600)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			results <- err
		})
	}
	all.Wait()
	close(results)

	succeeded := 0
	for err := range results {
		switch {
		case err == nil:
			succeeded++
		case !errors.Is(err, unix.EADDRINUSE):
			t.Error(err)
		}
	}
	if succeeded != 1 {
		t.Errorf("%d listen", succeeded)
	}
}

func TestADirectoryThatSomebodyKeepsLockedIsAnErrorAfterAWhile(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	if _, err := Listen(filepath.Join(dir, "s"), 0o600); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("got %v", err)
	}
}

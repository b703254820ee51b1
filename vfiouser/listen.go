// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// newSuffix is appended to a socket's path until it is ready.
	newSuffix = ".new"
	// maxPath is the longest path: sun_path of sockaddr_un has 108 bytes, unix(7).
	maxPath = 107 - len(newSuffix)
	// backlog is how many clients may wait to be accepted. They are accepted at once, served or not.
	backlog = 16
	// lockAttempts times lockPause is how long another process's Listen in the same directory is waited for.
	lockAttempts = 100
	lockPause    = 10 * time.Millisecond
)

// Listen binds a unix socket. When the path appears it is ready and has its mode: a client that waits for the path
// is not refused. A socket that somebody left behind is replaced; one on which somebody listens is EADDRINUSE, and
// anything else in the path's place is EEXIST. The path stays when the listener is closed, so that it is not missing
// while a service restarts; the listener's address is the path it was bound at, with ".new" behind it.
func Listen(path string, mode fs.FileMode) (*net.UnixListener, error) {
	l, err := listen(path, mode)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %q: %w", path, err)
	}
	return l, nil
}

func listen(path string, mode fs.FileMode) (*net.UnixListener, error) {
	switch {
	case path == "" || path[0] == '@' || strings.ContainsRune(path, 0):
		return nil, fmt.Errorf("not the path of a file: %w", unix.EINVAL)
	case len(path) > maxPath:
		return nil, fmt.Errorf("%d bytes, a socket's path has at most %d: %w", len(path), maxPath, unix.ENAMETOOLONG)
	case mode != mode.Perm():
		return nil, fmt.Errorf("mode %v: %w", mode, unix.EINVAL)
	}
	unlock, err := lockDirectory(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkVacant(path); err != nil {
		return nil, err
	}
	if err := removeSocket(path + newSuffix); err != nil {
		return nil, err
	}
	l, err := bind(path+newSuffix, mode)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		_ = l.Close()
		_ = os.Remove(path + newSuffix)
		return nil, err
	}
	return l, nil
}

// lockDirectory keeps other processes from replacing a socket in a directory at the same time.
func lockDirectory(dir string) (unlock func(), err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("directory %q: %w", dir, err)
	}
	for range lockAttempts {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = unix.Close(fd) }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			break
		}
		time.Sleep(lockPause)
	}
	_ = unix.Close(fd)
	return nil, fmt.Errorf("lock directory %q: %w", dir, err)
}

// socketAt reports whether there is a socket at a path. It returns an error if there is something else.
func socketAt(path string) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.Mode().Type() != fs.ModeSocket:
		return false, fmt.Errorf("%s is no socket, remove it or choose another path: %w", filepath.Base(path), unix.EEXIST)
	}
	return true, nil
}

// checkVacant returns an error unless the path is free, or a socket on which nobody listens.
func checkVacant(path string) error {
	if there, err := socketAt(path); err != nil || !there {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("probe the socket: %w", err)
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil
	case err == nil:
		owner := "somebody"
		if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			owner = fmt.Sprintf("process %d of user %d", cred.Pid, cred.Uid)
		}
		return fmt.Errorf("%s listens there already: %w", owner, unix.EADDRINUSE)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EPROTOTYPE):
		return fmt.Errorf("somebody listens there already: %w", unix.EADDRINUSE)
	default:
		return fmt.Errorf("probe the socket: %w", err)
	}
}

// removeSocket removes what an earlier Listen may have left when it was interrupted.
func removeSocket(path string) error {
	if there, err := socketAt(path); err != nil || !there {
		return err
	}
	return os.Remove(path)
}

// bind makes a listening socket. Nobody can connect before it has its mode.
func bind(path string, mode fs.FileMode) (*net.UnixListener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close() // the listener has a copy
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	l, err := listenAt(fd, file, path, mode)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return l, nil
}

// listenAt makes a bound socket listen.
func listenAt(fd int, file *os.File, path string, mode fs.FileMode) (*net.UnixListener, error) {
	if err := os.Chmod(path, mode); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

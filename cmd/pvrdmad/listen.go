// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"

	"github.com/pvrdmad/pvrdmad/internal/config"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

// listenGuest opens the guest's socket, or takes over fd if that is not -1.
func listenGuest(g *config.Guest, fd int) (*net.UnixListener, error) {
	if fd >= 0 {
		return adopt(fd)
	}
	gid, err := socketGroup(g)
	if err != nil {
		return nil, err
	}
	l, err := vfiouser.Listen(g.SocketPath, fs.FileMode(g.SocketMode))
	if err != nil {
		return nil, unavailable("guest %q: %w: %s", g.Name, err, listenAdvice(err))
	}
	if gid >= 0 {
		if err := os.Chown(g.SocketPath, -1, gid); err != nil {
			_ = l.Close()
			return nil, unavailable("guest %q: give socket to group %q: %w: start the daemon as root or as a member of it",
				g.Name, g.SocketGroup, err)
		}
	}
	return l, nil
}

// listenAdvice is the next step after a socket could not be opened.
func listenAdvice(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "create the directory, or set socket_path"
	case errors.Is(err, unix.EADDRINUSE):
		return "stop the daemon that serves it, or set socket_path"
	case errors.Is(err, unix.EEXIST):
		return "remove what is in its place, or set socket_path"
	case errors.Is(err, fs.ErrPermission):
		return "start the daemon as a user who may write there, or set socket_path"
	default:
		return "set socket_path to a place where a socket can be made"
	}
}

// socketGroup returns the number of the group that the guest's socket belongs to, -1 for the daemon's own.
func socketGroup(g *config.Guest) (int, error) {
	if g.SocketGroup == "" {
		return -1, nil
	}
	text := g.SocketGroup
	if group, err := user.LookupGroup(text); err == nil {
		text = group.Gid
	}
	gid, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return -1, config.Problems{{
			Origin: g.Origin("socket_group"), Key: "socket_group",
			Msg: fmt.Sprintf("there is no group %q on this host: create it, or leave socket_group out", g.SocketGroup),
		}}
	}
	return int(gid), nil
}

// adopt makes a listener of a descriptor that the daemon was started with.
func adopt(fd int) (*net.UnixListener, error) {
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err == nil && listening == 0 {
		err = unix.EINVAL
	}
	if err != nil {
		return nil, usage("--fd %d is no listening socket: %w", fd, err)
	}
	f := os.NewFile(uintptr(fd), "--fd")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, usage("--fd %d cannot be used: %w", fd, err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok || u.Addr().Network() != "unix" {
		_ = l.Close()
		return nil, usage("--fd %d is no Unix stream socket but %s", fd, l.Addr().Network())
	}
	return u, nil
}

// metricsMode lets the daemon's group read metrics.
const metricsMode = 0o660

// listenMetrics opens the place where metrics are served and returns its address; nil if that is nowhere.
func listenMetrics(l config.Listen) (net.Listener, string, error) {
	if l.Off() {
		return nil, "", nil
	}
	if l.Network == "unix" {
		u, err := vfiouser.Listen(l.Address, metricsMode)
		if err != nil {
			return nil, "", unavailable("metrics: %w: change [metrics] listen, or turn it off", err)
		}
		return u, l.Address, nil
	}
	t, err := net.Listen(l.Network, l.Address)
	if err != nil {
		return nil, "", unavailable("metrics: %w: change [metrics] listen, or turn it off", err)
	}
	return t, t.Addr().String(), nil
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns who connected. A process that has gone by now keeps its ids; nothing else can fail.
func peerOf(conn *net.UnixConn) Peer {
	var p Peer
	withFD(conn, func(fd int) {
		if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p.PID, p.UID, p.GID = cred.Pid, cred.Uid, cred.Gid
		}
	})
	return p
}

// hungUp says whether the other end of a connection is closed, or sends no more.
func hungUp(conn *net.UnixConn) bool { return polled(conn, unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) }

// disconnected says whether the other end of a connection is closed. One that sends no more, but reads, is not.
func disconnected(conn *net.UnixConn) bool { return polled(conn, unix.POLLHUP|unix.POLLERR) }

// polled says whether poll(2) reports one of some events now.
func polled(conn *net.UnixConn, events int16) bool {
	found := true // if the connection is closed on this side
	withFD(conn, func(fd int) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(fds, 0)
		found = err == nil && n > 0 && fds[0].Revents&events != 0
	})
	return found
}

// withFD calls fn with a connection's fd, unless the connection is closed.
func withFD(conn *net.UnixConn, fn func(fd int)) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { fn(int(fd)) })
}

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

// hungUp says whether the other end of a connection is closed.
func hungUp(conn *net.UnixConn) bool {
	gone := true // if the connection is closed on this side
	withFD(conn, func(fd int) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone
}

// withFD calls fn with a connection's fd, unless the connection is closed.
func withFD(conn *net.UnixConn, fn func(fd int)) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { fn(int(fd)) })
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestASocketThatLingersDoesNotHoldUpItsClose(t *testing.T) {
	// Arrange: a TCP socket with bytes that its peer does not read, set to linger for a minute.
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	f, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 1<<20); ; {
		if _, err := unix.Write(fd, chunk); err != nil {
			break // the buffers are full
		}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}); err != nil {
		t.Fatal(err)
	}

	// Act
	closed := make(chan struct{})
	go func() {
		closeFD(fd)
		close(closed)
	}()

	// Assert
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Fatal("close waits for the socket to linger")
	}
}

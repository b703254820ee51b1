// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"

	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

// Sizes of the messages of a register access: vfio-user's header, the access, and a register's four bytes.
const (
	accessSize  = vfio.HeaderSize + 16
	regSize     = 4
	writeSize   = accessSize + regSize
	writeAnswer = accessSize
	readSize    = accessSize
	readAnswer  = accessSize + regSize
)

// door is a connection to a device or to what stands in for one, and the eventfd of an interrupt. It spends as little as
// possible on a message: system calls that block, on buffers that exist.
type door struct {
	fd, event   int
	write, read [writeSize]byte
	in          [readAnswer]byte
}

// newDoor makes a door that writes one register and reads another.
func newDoor(fd, event int, bar, writeReg, readReg uint32) (*door, error) {
	d := &door{fd: fd, event: event}
	frame(d.write[:], vfio.CmdRegionWrite, writeSize, bar, writeReg)
	frame(d.read[:], vfio.CmdRegionRead, readSize, bar, readReg)
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, fmt.Errorf("make the socket block: %w", err)
	}
	return d, nil
}

func frame(b []byte, cmd uint16, size int, bar, reg uint32) {
	copy(b, vfio.Header{ID: 1, Command: cmd, Size: uint32(size)}.Encode())
	binary.NativeEndian.PutUint64(b[16:], uint64(reg))
	binary.NativeEndian.PutUint32(b[24:], bar)
	binary.NativeEndian.PutUint32(b[28:], regSize)
}

// close gives the connection back to Go's poller.
func (d *door) close() error {
	err := unix.SetNonblock(d.fd, true)
	_ = unix.Close(d.fd)
	return err
}

// command writes the first register and reads the second, whose value it returns, and takes the interrupt, which has come
// by then.
func (d *door) command() (uint32, error) {
	if err := d.exchange(d.write[:], writeAnswer); err != nil {
		return 0, err
	}
	if err := d.exchange(d.read[:readSize], readAnswer); err != nil {
		return 0, err
	}
	v := binary.NativeEndian.Uint32(d.in[accessSize:])
	var count [8]byte
	if _, err := unix.Read(d.event, count[:]); err != nil {
		return v, fmt.Errorf("the interrupt: %w", err)
	}
	return v, nil
}

func (d *door) exchange(out []byte, answer int) error {
	if _, err := unix.Write(d.fd, out); err != nil {
		return fmt.Errorf("register access: %w", err)
	}
	// As QEMU's main loop does: who waits in a read is woken, too, when the other side has read.
	for {
		p := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(p, -1); n == 1 || (err != nil && err != unix.EINTR) {
			break
		}
	}
	return fill32(d.fd, d.in[:answer])
}

// fill32 reads a message of known size, at most some tens of bytes: stream sockets may give it in pieces.
func fill32(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		if err != nil {
			return fmt.Errorf("register access: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("register access: the other side is gone: %w", unix.EPIPE)
		}
		b = b[n:]
	}
	return nil
}

// answerRequest names the descriptors of a bare door's other side, in the process that made them.
type answerRequest struct {
	PID, Socket, Event int
}

// answerBarely is the other side of a bare door: it answers messages of a command's sizes and writes the eventfd between,
// until the connection ends.
func answerBarely(_ *child, q answerRequest) (bareServed, error) {
	var a bareServed
	fd, err := stealFD(q.PID, q.Socket)
	if err != nil {
		return a, err
	}
	defer unix.Close(fd)
	event, err := stealFD(q.PID, q.Event)
	if err != nil {
		return a, err
	}
	defer unix.Close(event)
	var in, out [writeSize]byte
	one := binary.NativeEndian.AppendUint64(nil, 1)
	for ; ; a.Served++ {
		if n, err := unix.Read(fd, in[:writeSize]); n == 0 {
			return a, err
		} else if n != writeSize {
			return a, fmt.Errorf("a message of %d bytes: %w", n, unix.EPROTO)
		}
		if _, err := unix.Write(fd, out[:writeAnswer]); err != nil {
			return a, err
		}
		if err := fill32(fd, in[:readSize]); err != nil {
			return a, err
		}
		if _, err := unix.Write(event, one); err != nil {
			return a, err
		}
		if _, err := unix.Write(fd, out[:readAnswer]); err != nil {
			return a, err
		}
	}
}

// stealFD opens another process's descriptor.
func stealFD(pid, fd int) (int, error) {
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(p)
	n, err := unix.PidfdGetfd(p, fd, 0)
	if err != nil {
		return -1, fmt.Errorf("take descriptor %d of process %d: %w", fd, pid, err)
	}
	return n, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package vfio is the client side of vfio-user as QEMU's vfio-user-pci behaves: one outstanding request, a limit on
// the time of an answer, writes that wait for their answer as soon as a region can be mapped. It is written from QEMU's
// docs/interop/vfio-user.rst.
//
// It may not share code with the server, and knows nothing of the device behind the regions.
package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Commands of the vfio-user document.
const (
	CmdVersion          = 1
	CmdDMAMap           = 2
	CmdDMAUnmap         = 3
	CmdDeviceGetInfo    = 4
	CmdGetRegionInfo    = 5
	CmdGetRegionIOFDs   = 6
	CmdGetIRQInfo       = 7
	CmdSetIRQs          = 8
	CmdRegionRead       = 9
	CmdRegionWrite      = 10
	CmdDMARead          = 11
	CmdDMAWrite         = 12
	CmdDeviceReset      = 13
	CmdRegionWriteMulti = 15
)

// Flags of a message header.
const (
	FlagReply   = 1 << 0
	FlagNoReply = 1 << 4
	FlagError   = 1 << 5
	typeMask    = 0xf
)

const (
	// HeaderSize is the length of a message header in bytes.
	HeaderSize = 16
	// maxFDs is the most file descriptors that QEMU accepts in one message.
	maxFDs = 16
	// maxFrame bounds what a server may send: no answer to a request of ours is longer.
	maxFrame = 2 << 20
)

// Header is a message header.
type Header struct {
	ID, Command uint16
	// Size is the message's length in bytes, header included.
	Size, Flags, Errno uint32
}

// Frame is a message as it came.
type Frame struct {
	Header
	Payload []byte
	// FDs are the receiver's to close.
	FDs []int
}

// CloseFDs closes the descriptors that came with the message.
func (f *Frame) CloseFDs() {
	for _, fd := range f.FDs {
		_ = unix.Close(fd) // nothing was written through it
	}
	f.FDs = nil
}

// Encode returns the header's bytes.
func (h Header) Encode() []byte {
	b := make([]byte, HeaderSize)
	binary.NativeEndian.PutUint16(b, h.ID)
	binary.NativeEndian.PutUint16(b[2:], h.Command)
	binary.NativeEndian.PutUint32(b[4:], h.Size)
	binary.NativeEndian.PutUint32(b[8:], h.Flags)
	binary.NativeEndian.PutUint32(b[12:], h.Errno)
	return b
}

func decodeHeader(b []byte) Header {
	return Header{
		ID: binary.NativeEndian.Uint16(b), Command: binary.NativeEndian.Uint16(b[2:]),
		Size: binary.NativeEndian.Uint32(b[4:]), Flags: binary.NativeEndian.Uint32(b[8:]),
		Errno: binary.NativeEndian.Uint32(b[12:]),
	}
}

// Wire is a connection without any rule of the protocol: what tests of hostile clients need.
type Wire struct{ conn *net.UnixConn }

// Dup returns another descriptor of the connection, for those who want to spend no more on a message than the kernel does.
func (w *Wire) Dup() (int, error) {
	f, err := w.conn.File()
	if err != nil {
		return -1, fmt.Errorf("duplicate the connection: %w", err)
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// DialWire connects to a server's socket.
func DialWire(path string) (*Wire, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("connect to the device: %w", err)
	}
	return &Wire{conn: conn}, nil
}

// Close closes the connection.
func (w *Wire) Close() error { return w.conn.Close() }

// Send writes bytes as they are; the descriptors travel with the first of them.
func (w *Wire) Send(b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := w.conn.WriteMsgUnix(b, oob, nil)
	if err == nil && n < len(b) {
		_, err = w.conn.Write(b[n:])
	}
	if err != nil {
		return fmt.Errorf("send to the device: %w", err)
	}
	return nil
}

// SendFrame writes a message whose size is right; the rest of the header is the caller's.
func (w *Wire) SendFrame(h Header, payload []byte, fds ...int) error {
	h.Size = uint32(HeaderSize + len(payload))
	return w.Send(append(h.Encode(), payload...), fds...)
}

// SetDeadline bounds the following calls.
func (w *Wire) SetDeadline(t time.Time) error { return w.conn.SetDeadline(t) }

// Receive reads one message. It fails with io.EOF when the server has closed the connection.
func (w *Wire) Receive() (*Frame, error) {
	f := &Frame{}
	head := make([]byte, HeaderSize)
	if err := w.fill(f, head); err != nil {
		return nil, err
	}
	f.Header = decodeHeader(head)
	if f.Size < HeaderSize || f.Size > maxFrame {
		f.CloseFDs()
		return nil, fmt.Errorf("receive from the device: a message of %d bytes: %w", f.Size, unix.EPROTO)
	}
	f.Payload = make([]byte, f.Size-HeaderSize)
	if err := w.fill(f, f.Payload); err != nil {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	return f, nil
}

// fill reads exactly len(b) bytes and keeps the descriptors that come with them. If it fails it closes them.
func (w *Wire) fill(f *Frame, b []byte) error {
	oob := make([]byte, unix.CmsgSpace(4*maxFDs))
	for len(b) > 0 {
		n, oobn, _, _, err := w.conn.ReadMsgUnix(b, oob)
		if oobn > 0 {
			fds, perr := parseRights(oob[:oobn])
			f.FDs = append(f.FDs, fds...)
			err = errors.Join(err, perr)
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			f.CloseFDs()
			return fmt.Errorf("receive from the device: %w", err)
		}
		b = b[n:]
	}
	return nil
}

func parseRights(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var all []int
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return all, err
		}
		all = append(all, fds...)
	}
	return all, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package agentproto is the language that the VM harness and the agent inside a guest speak over a virtio-serial port.
//
// The port is a reliable byte stream, which the harness opens anew after each guest reset. One stream carries many
// scripts and files at a time: each frame names its stream, and the session of the boot it belongs to. The package
// may do no I/O but on the stream it is given, and knows nothing of QEMU or of processes.
package agentproto

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// PortName is the name of the virtio-serial port.
const PortName = "org.pvrdmad.agent"

// MaxPayload is the largest payload of one frame, in bytes: small enough that two scripts share the port fairly.
const MaxPayload = 32 << 10

// Kind says what a frame means.
type Kind uint8

// The kinds of frames.
const (
	KindRun    Kind = 1 + iota // to the agent, a Run: starts a script; the harness chose the stream's number
	KindKill                   // to the agent, empty: kills the stream's script and all its children
	KindPut                    // to the agent, a File: KindData frames and a KindEnd follow
	KindGet                    // to the agent, a File: KindData frames and a KindExit come back
	KindData                   // either way: bytes of a file
	KindEnd                    // to the agent, empty: the file is complete
	KindHello                  // from the agent, a Hello: it is up; begins a session
	KindStdout                 // from the agent: bytes that the script wrote
	KindStderr                 // from the agent: bytes that the script wrote
	KindExit                   // from the agent, an Exit: the last frame of a stream
)

// Frame is one message. Session is the random number in the header of the Hello that began this boot's session.
type Frame struct {
	Session uint32
	Stream  uint32
	Kind    Kind
	Payload []byte
}

// Run asks for a script to be run by bash.
type Run struct {
	Script  string `json:"script"`
	LimitMS int64  `json:"limit_ms"` // after so many milliseconds the script and its children are killed; 0: never
}

// File names a file in the guest.
type File struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode,omitempty"` // permission bits of a file that is written
}

// Hello is the agent's first frame after each boot.
type Hello struct {
	Name   string   `json:"name"`   // the guest's host name
	Kernel string   `json:"kernel"` // uname -r
	Uptime float64  `json:"uptime"` // seconds since the kernel started
	Errors []string `json:"errors"` // what went wrong while the guest came up
}

// Exit ends a stream.
type Exit struct {
	Status   int    `json:"status"`        // the script's exit status; -1 if a signal ended it
	Signal   int    `json:"signal"`        // the signal that ended it, or 0
	TimedOut bool   `json:"timed_out"`     // it ran into LimitMS
	Err      string `json:"err,omitempty"` // why the agent could not do what was asked
}

const (
	magic      = 0x67615650 // "PVag"
	headerSize = 20         // magic, session, stream, kind and 3 zero bytes, payload length; little-endian
)

// What a reader or writer can meet besides the stream's own errors.
var (
	ErrPayload = errors.New("agent frame: payload is longer than 32 KiB")
	ErrMagic   = errors.New("agent frame: stream is out of step (bad magic number)")
)

// Write writes f in one call of w.Write.
func Write(w io.Writer, f Frame) error {
	if len(f.Payload) > MaxPayload {
		return ErrPayload
	}
	b := make([]byte, headerSize, headerSize+len(f.Payload))
	binary.LittleEndian.PutUint32(b, magic)
	binary.LittleEndian.PutUint32(b[4:], f.Session)
	binary.LittleEndian.PutUint32(b[8:], f.Stream)
	b[12] = byte(f.Kind)
	binary.LittleEndian.PutUint32(b[16:], uint32(len(f.Payload)))
	if _, err := w.Write(append(b, f.Payload...)); err != nil {
		return fmt.Errorf("write agent frame: %w", err)
	}
	return nil
}

// Read reads the next frame. A stream that ends between two frames gives io.EOF.
func Read(r io.Reader) (Frame, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, fmt.Errorf("read agent frame: %w", err)
	}
	size := binary.LittleEndian.Uint32(head[16:])
	switch {
	case binary.LittleEndian.Uint32(head[:]) != magic:
		return Frame{}, ErrMagic
	case size > MaxPayload:
		return Frame{}, ErrPayload
	}
	f := Frame{
		Session: binary.LittleEndian.Uint32(head[4:]),
		Stream:  binary.LittleEndian.Uint32(head[8:]),
		Kind:    Kind(head[12]),
		Payload: make([]byte, size),
	}
	if _, err := io.ReadFull(r, f.Payload); err != nil {
		return Frame{}, fmt.Errorf("read agent frame's payload: %w", err)
	}
	return f, nil
}

// Encode returns v as a payload. Its callers pass the structs above, which always encode.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("agent frame: encode %T: %v", v, err))
	}
	return b
}

// Decode fills v from a payload.
func Decode(payload []byte, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("agent frame: decode %T: %w", v, err)
	}
	return nil
}

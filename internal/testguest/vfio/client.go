// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultTimeout is how long an answer may take: six times what QEMU waits (x-msg-timeout is 5 s), since tests run beside
// others on machines with few processors.
const DefaultTimeout = 30 * time.Second

// ErrBroken says that an earlier request found the connection unusable; as with QEMU there is no way back.
var ErrBroken = errors.New("the connection is broken")

// ReplyError is an error reply of the server.
type ReplyError struct {
	Command uint16
	Errno   unix.Errno
}

// Error implements error.
func (e *ReplyError) Error() string {
	return fmt.Sprintf("the device refuses message %d: %v", e.Command, e.Errno)
}

// Unwrap returns the errno.
func (e *ReplyError) Unwrap() error { return e.Errno }

// Client is a vfio-user client. Its methods may be called from any goroutine; requests go out one at a time.
type Client struct {
	wire    *Wire
	timeout time.Duration

	mu      sync.Mutex
	id      uint16
	broken  error
	posting bool // writes are posted: no region can be mapped
}

// Dial connects and agrees on the version as QEMU does.
func Dial(path string) (*Client, error) {
	w, err := DialWire(path)
	if err != nil {
		return nil, err
	}
	c := &Client{wire: w, timeout: DefaultTimeout, posting: true}
	if err := c.version(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return c, nil
}

// Wire gives the connection away to be abused; the client's own requests may fail afterwards.
func (c *Client) Wire() *Wire { return c.wire }

// SetTimeout changes how long an answer may take.
func (c *Client) SetTimeout(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timeout = d
}

// Close closes the connection.
func (c *Client) Close() error { return c.wire.Close() }

// call sends a request and returns its answer. The caller closes the answer's descriptors.
func (c *Client) call(cmd uint16, payload []byte, fds ...int) (*Frame, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return nil, fmt.Errorf("message %d: %w: %w", cmd, ErrBroken, c.broken)
	}
	f, err := c.exchange(cmd, payload, fds)
	var refused *ReplyError
	if err != nil && !errors.As(err, &refused) {
		c.broken = err
	}
	return f, err
}

func (c *Client) exchange(cmd uint16, payload []byte, fds []int) (*Frame, error) {
	c.id++
	if err := c.wire.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if err := c.wire.SendFrame(Header{ID: c.id, Command: cmd}, payload, fds...); err != nil {
		return nil, err
	}
	f, err := c.wire.Receive()
	if err != nil {
		return nil, fmt.Errorf("message %d: %w", cmd, err)
	}
	if f.ID != c.id || f.Command != cmd || f.Flags&typeMask != FlagReply {
		f.CloseFDs()
		return nil, fmt.Errorf("message %d of id %d answered by message %d of id %d, flags %#x: %w",
			cmd, c.id, f.Command, f.ID, f.Flags, unix.EPROTO)
	}
	if f.Flags&FlagError == 0 {
		return f, nil
	}
	f.CloseFDs()
	if f.Size != HeaderSize || f.Errno == 0 {
		return nil, fmt.Errorf("message %d: an error reply of %d bytes, errno %d: %w",
			cmd, f.Size, f.Errno, unix.EPROTO)
	}
	return nil, &ReplyError{Command: cmd, Errno: unix.Errno(f.Errno)}
}

// post sends a request that wants no answer.
func (c *Client) post(cmd uint16, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return fmt.Errorf("message %d: %w: %w", cmd, ErrBroken, c.broken)
	}
	c.id++
	if err := c.wire.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	err := c.wire.SendFrame(Header{ID: c.id, Command: cmd, Flags: FlagNoReply}, payload)
	if err != nil {
		c.broken = err
	}
	return err
}

// fixed makes a call whose answer has a fixed length and no descriptors.
func (c *Client) fixed(cmd uint16, payload []byte, answer int, fds ...int) ([]byte, error) {
	f, err := c.call(cmd, payload, fds...)
	if err != nil {
		return nil, err
	}
	defer f.CloseFDs()
	if len(f.Payload) != answer || len(f.FDs) != 0 {
		return nil, fmt.Errorf("message %d answered by %d bytes and %d descriptors, want %d and none: %w",
			cmd, len(f.Payload), len(f.FDs), answer, unix.EPROTO)
	}
	return f.Payload, nil
}

// qemuVersion is what QEMU 11.1 offers.
const qemuVersion = `{"capabilities": {"migration": {"pgsize": 4096, "max_bitmap_size": 268435456}, ` +
	`"max_msg_fds": 16, "pgsizes": 4096, "max_dma_maps": 65535, "max_data_xfer_size": 1048576, "write_multiple": true}}`

// VersionRequest is the payload of QEMU's VERSION message.
func VersionRequest() []byte {
	return append(append(make([]byte, 4), qemuVersion...), 0)
}

// version agrees on the version and checks the answer as QEMU does.
func (c *Client) version() error {
	request := VersionRequest()
	f, err := c.call(CmdVersion, request)
	if err != nil {
		return err
	}
	defer f.CloseFDs()
	p := f.Payload
	switch {
	case len(p) > len(request):
		return fmt.Errorf("VERSION answered by %d bytes, more than were sent: %w", len(p), unix.EPROTO)
	case len(p) < 4 || binary.NativeEndian.Uint32(p) != 0:
		return fmt.Errorf("VERSION answered by % x, want version 0.0: %w", p[:min(4, len(p))], unix.EPROTO)
	case len(p) == 4:
		return nil
	case p[len(p)-1] != 0:
		return fmt.Errorf("the capabilities do not end in NUL: %w", unix.EPROTO)
	}
	return checkCapabilities(p[4 : len(p)-1])
}

func checkCapabilities(text []byte) error {
	var v struct {
		Capabilities struct {
			MaxMsgFDs  *uint64 `json:"max_msg_fds"`
			MaxDMAMaps *uint64 `json:"max_dma_maps"`
			PgSizes    *uint64 `json:"pgsizes"`
		} `json:"capabilities"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("decode the capabilities %q: %w", text, err)
	}
	caps := v.Capabilities
	if over(caps.MaxMsgFDs, 16) || over(caps.MaxDMAMaps, 65535) {
		return fmt.Errorf("the device wants more than QEMU offers: %s: %w", text, unix.EPROTO)
	}
	if caps.PgSizes != nil && *caps.PgSizes&0xfff != 0 {
		return fmt.Errorf("the device wants pages below 4096 bytes: %s: %w", text, unix.EPROTO)
	}
	return nil
}

func over(v *uint64, limit uint64) bool { return v != nil && *v > limit }

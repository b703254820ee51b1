// SPDX-License-Identifier: Apache-2.0

package vfio_test

import (
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// versionReply is what a good server answers to QEMU's VERSION.
const versionReply = "\x00\x00\x00\x00" + `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":4096}}` + "\x00"

// reply is what the server in a test answers to one request.
type reply struct {
	// change alters the header of the right answer, payload is its payload.
	change  func(*vfio.Header)
	payload string
}

// serve answers the first requests of the first client with replies, then closes. It returns the socket.
func serve(t *testing.T, replies ...reply) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		for _, r := range replies {
			if !answer(conn, r) {
				return
			}
		}
		_, _ = conn.Read(make([]byte, 1)) // until the client has gone
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return path
}

func answer(conn *net.UnixConn, r reply) bool {
	head := make([]byte, vfio.HeaderSize)
	if _, err := readFull(conn, head); err != nil {
		return false
	}
	body := make([]byte, binary.NativeEndian.Uint32(head[4:])-vfio.HeaderSize)
	if _, err := readFull(conn, body); err != nil {
		return false
	}
	h := vfio.Header{
		ID: binary.NativeEndian.Uint16(head), Command: binary.NativeEndian.Uint16(head[2:]),
		Size: uint32(vfio.HeaderSize + len(r.payload)), Flags: vfio.FlagReply,
	}
	if r.change != nil {
		r.change(&h)
	}
	_, err := conn.Write(append(h.Encode(), r.payload...))
	return err == nil
}

func readFull(conn *net.UnixConn, b []byte) (int, error) {
	n := 0
	for n < len(b) {
		m, err := conn.Read(b[n:])
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

func dial(t *testing.T, path string) *vfio.Client {
	t.Helper()
	c, err := vfio.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAVersionThatQEMUWouldNotTakeIsRefused(t *testing.T) {
	for name, payload := range map[string]string{
		"another major version":    "\x01\x00\x00\x00{}\x00",
		"a minor version":          "\x00\x00\x01\x00{}\x00",
		"no NUL":                   "\x00\x00\x00\x00{}",
		"no JSON":                  "\x00\x00\x00\x00{\x00",
		"more than was sent":       "\x00\x00\x00\x00{\"x\":\"" + strings.Repeat("y", 400) + "\"}\x00",
		"more descriptors":         "\x00\x00\x00\x00{\"capabilities\":{\"max_msg_fds\":17}}\x00",
		"pages of 512":             "\x00\x00\x00\x00{\"capabilities\":{\"pgsizes\":512}}\x00",
		"more maps than there are": "\x00\x00\x00\x00{\"capabilities\":{\"max_dma_maps\":65536}}\x00",
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := vfio.Dial(serve(t, reply{payload: payload})); err == nil {
				c.Close()
				t.Error("it is taken")
			}
		})
	}
}

func TestAnAnswerToAnotherRequestBreaksTheConnection(t *testing.T) {
	for name, change := range map[string]func(*vfio.Header){
		"another id":       func(h *vfio.Header) { h.ID++ },
		"another command":  func(h *vfio.Header) { h.Command++ },
		"a request":        func(h *vfio.Header) { h.Flags = 0 },
		"a long error":     func(h *vfio.Header) { h.Flags |= vfio.FlagError; h.Errno = 22 },
		"a size too small": func(h *vfio.Header) { h.Size = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, serve(t, reply{payload: versionReply}, reply{change: change, payload: strings.Repeat("x", 16)}))
			if _, err := c.DeviceInfo(); err == nil {
				t.Fatal("it is taken")
			}
			if _, err := c.DeviceInfo(); !errors.Is(err, vfio.ErrBroken) {
				t.Errorf("the next request: %v, want that the connection is broken", err)
			}
		})
	}
}

func TestAnErrorReplyIsAnErrnoAndTheConnectionGoesOn(t *testing.T) {
	refuse := reply{change: func(h *vfio.Header) { h.Flags |= vfio.FlagError; h.Errno = uint32(unix.EEXIST) }}
	c := dial(t, serve(t, reply{payload: versionReply}, refuse, reply{}))
	m := vfio.DMAMap{Addr: 4096, Size: 4096, FD: -1}
	if err := c.MapDMA(m); !errors.Is(err, unix.EEXIST) {
		t.Errorf("err = %v, want EEXIST", err)
	}
	if err := c.MapDMA(m); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestWritesArePostedUntilARegionCanBeMapped(t *testing.T) {
	info := make([]byte, 32)
	binary.NativeEndian.PutUint32(info, 32)
	binary.NativeEndian.PutUint32(info[4:], vfio.RegionMMap)
	c := dial(t, serve(t, reply{payload: versionReply}, reply{payload: string(info)}))
	if !c.Posting() {
		t.Error("writes wait before anything can be mapped")
	}
	if _, err := c.RegionInfo(0); err != nil {
		t.Fatal(err)
	}
	if c.Posting() {
		t.Error("writes are posted although a region can be mapped")
	}
}

func TestAServerThatIsSilentIsGivenUp(t *testing.T) {
	c := dial(t, serve(t, reply{payload: versionReply}))
	c.SetTimeout(50 * time.Millisecond)
	began := time.Now()
	if err := c.Reset(); err == nil {
		t.Error("a reset without an answer succeeds")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestASparseListThatLiesIsRefused(t *testing.T) {
	for name, area := range map[string][2]uint64{
		"beyond the region": {4096, 8192}, "off a page": {8, 4096}, "that wraps": {4096, 1<<64 - 4096},
	} {
		t.Run(name, func(t *testing.T) {
			info := make([]byte, 64)
			binary.NativeEndian.PutUint32(info, 64)
			binary.NativeEndian.PutUint32(info[4:], vfio.RegionMMap|vfio.RegionCaps)
			binary.NativeEndian.PutUint32(info[12:], 32)
			binary.NativeEndian.PutUint64(info[16:], 8192)
			binary.NativeEndian.PutUint16(info[32:], 1)
			binary.NativeEndian.PutUint16(info[34:], 1)
			binary.NativeEndian.PutUint32(info[40:], 1)
			binary.NativeEndian.PutUint64(info[48:], area[0])
			binary.NativeEndian.PutUint64(info[56:], area[1])
			c := dial(t, serve(t, reply{payload: versionReply}, reply{payload: string(info[:32])}, reply{payload: string(info)}))
			if _, err := c.RegionInfo(0); !errors.Is(err, unix.EPROTO) {
				t.Errorf("err = %v, want EPROTO", err)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// qemuVersionData is what QEMU 10.1 and later offer.
const qemuVersionData = `{"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, ` +
	`"max_msg_fds": 16, "max_data_xfer_size": 1048576, "pgsizes": 4096, "max_dma_maps": 65535, "write_multiple": true}}`

// client is a vfio-user client that sends what it is told, right or wrong.
type client struct {
	t    testing.TB
	conn *net.UnixConn
	id   uint16
}

// frame is a message to be sent. A zero size is the right one.
type frame struct {
	command Command
	size    uint32
	flags   uint32
	body    []byte
	fds     []int
}

// reply is what came back.
type reply struct {
	header
	body []byte
	fds  []int
}

// dial connects to a socket.
func dial(t testing.TB, path string) *client {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, conn: conn}
	t.Cleanup(c.close)
	return c
}

func (c *client) close() { _ = c.conn.Close() }

// bytes returns a frame as it goes over the socket.
func (c *client) bytes(f frame) []byte {
	c.id++
	size := f.size
	if size == 0 {
		size = uint32(headerSize + len(f.body))
	}
	p := make([]byte, headerSize, headerSize+len(f.body))
	header{id: c.id, command: f.command, size: size, flags: f.flags}.put(p)
	return append(p, f.body...)
}

// send sends a frame in one write.
func (c *client) send(f frame) {
	c.t.Helper()
	c.write(c.bytes(f), f.fds...)
}

// write writes bytes, with fds attached to the first.
func (c *client) write(p []byte, fds ...int) {
	c.t.Helper()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.conn.WriteMsgUnix(p, oob, nil); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// receive reads a reply.
func (c *client) receive() (reply, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return reply{}, err
	}
	p, oob := make([]byte, headerSize), make([]byte, 1024)
	n, oobn, _, _, err := c.conn.ReadMsgUnix(p, oob)
	if err != nil {
		return reply{}, err
	}
	if n != headerSize {
		return reply{}, errors.New("header in pieces: QEMU gives up on that")
	}
	r := reply{header: parseHeader(p)}
	controls, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return r, err
	}
	for _, control := range controls {
		fds, err := unix.ParseUnixRights(&control)
		if err != nil {
			return r, err
		}
		r.fds = append(r.fds, fds...)
	}
	r.body = make([]byte, r.size-headerSize)
	_, err = io.ReadFull(c.conn, r.body)
	return r, err
}

// call sends a frame and returns the reply to it.
func (c *client) call(f frame) reply {
	c.t.Helper()
	c.send(f)
	return c.answer(f.command)
}

// answer returns the reply to the last frame.
func (c *client) answer(command Command) reply {
	c.t.Helper()
	r, err := c.receive()
	if err != nil {
		c.t.Fatalf("receive the reply to %s: %v", command, err)
	}
	if r.id != c.id || r.command != command || r.flags&headerType != typeReply {
		c.t.Fatalf("receive the reply to %s %d: got header %+v", command, c.id, r.header)
	}
	if failed := r.flags&headerError != 0; failed != (r.errno != 0) || failed && r.size != headerSize {
		c.t.Fatalf("receive the reply to %s: bad error header %+v", command, r.header)
	}
	return r
}

// must is a call that has to succeed.
func (c *client) must(f frame) reply {
	c.t.Helper()
	r := c.call(f)
	if r.errno != 0 {
		c.t.Fatalf("%s: %v", f.command, unix.Errno(r.errno))
	}
	return r
}

// handshake makes the session one of QEMU's.
func (c *client) handshake() *client {
	c.t.Helper()
	c.must(frame{command: CommandVersion, body: versionBody(0, 0, qemuVersionData+"\x00")})
	return c
}

// alive makes sure that the session goes on.
func (c *client) alive() {
	c.t.Helper()
	c.must(frame{command: CommandDeviceGetInfo, body: words(deviceInfoSize, 0, 0, 0)})
}

// ended makes sure that the server has closed the connection.
func (c *client) ended() {
	c.t.Helper()
	if r, err := c.receive(); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		c.t.Fatalf("the connection is open: got %+v, %v", r.header, err)
	}
}

// words returns 32-bit words in a row.
func words(ws ...uint32) []byte {
	var p []byte
	for _, w := range ws {
		p = binary.NativeEndian.AppendUint32(p, w)
	}
	return p
}

// longs returns 64-bit words in a row.
func longs(ws ...uint64) []byte {
	var p []byte
	for _, w := range ws {
		p = binary.NativeEndian.AppendUint64(p, w)
	}
	return p
}

func versionBody(major, minor uint16, data string) []byte {
	p := binary.NativeEndian.AppendUint16(nil, major)
	p = binary.NativeEndian.AppendUint16(p, minor)
	return append(p, data...)
}

func readFrame(index RegionIndex, off uint64, count uint32) frame {
	return frame{command: CommandRegionRead, body: access{off, index, count}.append(nil)}
}

func writeFrame(index RegionIndex, off uint64, data ...byte) frame {
	return frame{command: CommandRegionWrite, body: append(access{off, index, uint32(len(data))}.append(nil), data...)}
}

// posted makes a frame one that wants no reply.
func posted(f frame) frame {
	f.flags |= headerNoReply
	return f
}

// multiFrame returns a REGION_WRITE_MULTI of the accesses, each with the data 0x0807060504030201.
func multiFrame(writes ...access) frame {
	body := longs(uint64(len(writes)))
	for _, w := range writes {
		body = append(w.append(body), 1, 2, 3, 4, 5, 6, 7, 8)
	}
	return frame{command: CommandRegionWriteMulti, body: body}
}

func irqFrame(flags uint32, index IRQIndex, start, count uint32, bools ...byte) frame {
	body := words(irqSetSize+uint32(len(bools)), flags, uint32(index), start, count)
	return frame{command: CommandDeviceSetIRQs, body: append(body, bools...)}
}

// with attaches file descriptors to a frame.
func (f frame) with(fds ...int) frame {
	f.fds = fds
	return f
}

func mapFrame(flags uint32, offset, addr, size uint64) frame {
	return frame{command: CommandDMAMap, body: append(words(dmaMapSize, flags), longs(offset, addr, size)...)}
}

func unmapFrame(flags uint32, addr, size uint64) frame {
	return frame{command: CommandDMAUnmap, body: append(words(dmaUnmapSize, flags), longs(addr, size)...)}
}

func regionInfoFrame(argsz uint32, index RegionIndex) frame {
	return frame{command: CommandDeviceGetRegionInfo, body: words(argsz, 0, uint32(index), 0, 0, 0, 0, 0)}
}

func irqInfoFrame(index IRQIndex) frame {
	return frame{command: CommandDeviceGetIRQInfo, body: words(irqInfoSize, 0, uint32(index), 0)}
}

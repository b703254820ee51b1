// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketPair returns both ends of a connection.
func socketPair(t testing.TB) (client, server *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]*net.UnixConn{}
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "socketpair")
		conn, err := net.FileConn(file)
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// scriptHeader is the length of the script's own header of a message.
const scriptHeader = 6

// scriptFiles is where the bits of the script's number of files end; the bits above say what kind they are, and where in
// the message they come.
const (
	scriptFiles   = 0x1f
	scriptNoEvent = 1 << 5 // memory, and no eventfd
	scriptLate    = 1 << 6 // in the middle of the payload
)

// script turns bytes into messages, most of them nearly right: a header of six bytes (command, flags, what to lie about
// in the size, files, two of the payload's length), then the payload.
func script(data []byte, send func(p []byte, files byte) bool) {
	for len(data) >= scriptHeader {
		command, flags, lie, files := data[0], data[1], int8(data[2]), data[3]
		n := min(int(data[4])|int(data[5])<<8, len(data)-scriptHeader)
		body := data[scriptHeader:][:n]
		data = data[scriptHeader+n:]
		size := uint32(headerSize + n)
		if lie&7 == 7 {
			size += uint32(int32(lie))
		}
		p := make([]byte, headerSize)
		header{id: uint16(n), command: Command(command % 24), size: size, flags: uint32(flags & 0x3f)}.put(p)
		if flags>>6 == 3 {
			p[int(lie)&15] ^= 1 << (lie >> 4 & 7)
		}
		if !send(append(p, body...), files) {
			return
		}
	}
}

// peer is the client's end of a session that a script plays, with the files that it sends.
type peer struct {
	t       testing.TB
	conn    *net.UnixConn
	eventFD int
	memory  int
	replies chan []byte // all that was read, when the session is over
}

// newPeer begins to read, as an honest client does.
func newPeer(t testing.TB, conn *net.UnixConn) *peer {
	eventFD, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(memory, 1<<20); err != nil {
		t.Fatal(err)
	}
	p := &peer{t, conn, eventFD, memory, make(chan []byte, 1)}
	_ = conn.SetWriteDeadline(time.Now().Add(patience))
	go func() {
		all, _ := io.ReadAll(conn) // files that come along are closed by the kernel
		p.replies <- all
	}()
	return p
}

// send sends a message with files; it returns false if the server has hung up.
func (p *peer) send(m []byte, files byte) bool {
	fd := p.eventFD
	if files&scriptNoEvent != 0 {
		fd = p.memory
	}
	var oob []byte
	if n := int(files & scriptFiles); n > 0 {
		oob = unix.UnixRights(slices.Repeat([]int{fd}, n)...)
	}
	if late := headerSize + 4; files&scriptLate != 0 && len(m) > late {
		if _, err := p.conn.Write(m[:late]); err != nil {
			return false
		}
		m = m[late:]
	}
	_, _, err := p.conn.WriteMsgUnix(m, oob, nil)
	return err == nil
}

// end ends the conversation, waits for the end of the session and checks that whole replies were sent.
func (p *peer) end(done <-chan struct{}) {
	p.t.Helper()
	_ = p.conn.CloseWrite()
	select {
	case <-done:
	case <-time.After(patience):
		p.t.Fatal("the session does not end")
	}
	all := <-p.replies
	for len(all) >= headerSize {
		h := parseHeader(all)
		if h.flags&^headerError != typeReply || h.size < headerSize || uint64(h.size) > uint64(len(all)) ||
			h.flags&headerError != 0 && h.size != headerSize {
			p.t.Errorf("the server sent %+v with %d bytes left", h, len(all))
			break
		}
		all = all[h.size:]
	}
	if len(all) > 0 {
		p.t.Errorf("the server sent part of a reply: % x", all)
	}
}

// close closes the peer's files.
func (p *peer) close() {
	_ = p.conn.Close()
	_ = unix.Close(p.eventFD)
	_ = unix.Close(p.memory)
}

// drive plays a client that sends data's script, and checks what has to be true whatever it says: the device is
// called within the promises made to it (recordingDevice panics otherwise), nothing is called after Close, each refused
// message is told once, the session ends when the client does, and all file descriptors and goroutines are gone.
func drive(t testing.TB, data []byte) {
	before := takeCensus(t)
	conn, served := socketPair(t)
	p := newPeer(t, conn)
	d := newRecordingDevice(p.memory)
	p.playWhile(served, d, d, data, func() {})
	before.check(t)
}

// playWhile has a device served to the peer, which sends a script. d is the recordingDevice in it. after is called when
// the session is over, before the peer's files are closed.
func (p *peer) playWhile(served *net.UnixConn, device Device, d *recordingDevice, data []byte, after func()) {
	p.t.Helper()
	seen := &ledger{t: p.t, device: d}
	s := newSession(served, Peer{}, Config{
		Open:             func(*Session) (Device, error) { return device, nil },
		Observer:         seen,
		HandshakeTimeout: patience, WriteTimeout: patience,
	})
	go s.run()
	script(data, func(m []byte, files byte) bool {
		s.Trigger(IRQIndex(files%5), uint32(files%4))
		return p.send(m, files)
	})
	p.end(s.done)
	after()
	p.close()

	seen.check()
	if calls := d.methods(); s.opened && (len(calls) == 0 || calls[len(calls)-1] != "Close") {
		p.t.Errorf("the last call is not Close: %v", calls)
	}
}

// scripted returns the script that sends frames as they are.
func scripted(frames ...frame) []byte {
	var data []byte
	for _, f := range frames {
		n := len(f.body)
		data = append(data, byte(f.command), byte(f.flags), 0, byte(len(f.fds)), byte(n), byte(n>>8))
		data = append(data, f.body...)
	}
	return data
}

// hello is the VERSION with which scripts begin.
func hello() frame {
	return frame{command: CommandVersion, body: versionBody(0, 0, qemuVersionData+"\x00")}
}

// conversation reaches every handler.
func conversation() []frame {
	one := make([]int, 1)
	return []frame{
		hello(), mapFrame(3, 0, 0, 0x10000).with(one...), mapFrame(1, 0, 0x10000, 0x1000),
		command(CommandDeviceGetInfo, 0),
		{command: CommandDeviceGetInfo, body: words(16, 0, 0, 0)},
		regionInfoFrame(32, 0), regionInfoFrame(48, 1), regionInfoFrame(1024, 2), regionInfoFrame(32, 7),
		irqInfoFrame(IRQMSIX), irqInfoFrame(IRQINTx), irqFrame(assignFlags, IRQMSIX, 0, 3).with(make([]int, 3)...),
		irqFrame(assignFlags, IRQINTx, 0, 1).with(one...),
		readFrame(RegionConfig, 0, 256), writeFrame(RegionBAR1, 0x1c, 0, 0, 0, 0), posted(writeFrame(RegionBAR2, 0, 1, 2, 3, 4)),
		posted(multiFrame(access{0, RegionBAR0, 4}, access{8, RegionBAR1, 8}, access{0, RegionBAR3, 1})),
		multiFrame(access{0, RegionBAR0, 1}), irqFrame(noneTrigger, IRQMSIX, 0, 3), irqFrame(noneTrigger, IRQMSIX, 0, 0),
		irqFrame(irqDataBool|irqActionMask, IRQMSIX, 0, 3, 1, 0, 1), irqFrame(irqDataNone|irqActionUnmask, IRQMSIX, 0, 3),
		unmapFrame(0, 0, 0x10000), unmapFrame(dmaUnmapAll, 0, 0),
		{command: CommandDeviceReset},
		command(CommandDeviceFeature, 8), command(CommandDMARead, 16),
	}
}

// frameSeeds returns the scripts from which FuzzFrames starts.
func frameSeeds() map[string][]byte {
	plain := version(0, "{}")
	late := scripted(hello(), irqFrame(assignFlags, IRQMSIX, 0, 1).with(0))
	late[len(scripted(hello()))+3] |= scriptLate
	noEvent := scripted(hello(), irqFrame(assignFlags, IRQMSIX, 0, 1).with(0))
	noEvent[len(scripted(hello()))+3] |= scriptNoEvent
	seeds := map[string][]byte{
		"nothing": nil, "conversation": scripted(conversation()...), "hello": scripted(hello()),
		"plain-client": scripted(plain, regionInfoFrame(48, 1), regionInfoFrame(80, 2)),
		"no-data":      scripted(frame{command: CommandVersion, body: versionBody(0, 0, "")}),
		"longest":      scripted(hello(), multiFrame(slices.Repeat([]access{{0, RegionBAR0, 8}}, 2729)...)),
		"burst":        scripted(hello(), multiFrame(burst()...)),
		"late-file":    late, "no-eventfd": noEvent, "cut": scripted(hello(), readFrame(0, 0, 4))[:len(scripted(hello()))+8],
		"unmap-pages": scripted(hello(), mapFrame(3, 0, 0x1000, 0x1000), mapFrame(3, 0, 0x2000, 0x1000), unmapFrame(0, 0, 0x200000)),
	}
	// Lies about the size, and a bit of the header turned over.
	for name, head := range map[string][]byte{
		"size-15": {4, 0, 0xff, 0, 0, 0}, "size-off-by-7": {4, 0, 7, 0, 16, 0}, "size-65552": {4, 0xc0, 0x06, 0, 0, 0},
		"flag-31": {4, 0xc0, 0x7b, 0, 0, 0}, "command-260": {4, 0xc0, 0x03, 0, 0, 0},
	} {
		seeds[name] = append(scripted(hello()), append(head, make([]byte, 16)...)...)
	}
	for _, b := range openFaults() {
		if b.files <= scriptFiles && len(b.frame.body) < 8192 && b.frame.command < 24 && b.frame.size == 0 {
			seeds[b.id] = scripted(hello(), b.frame.with(make([]int, b.files)...))
		}
	}
	for _, b := range handshakeFaults() {
		if b.frame.command < 24 && b.frame.size == 0 {
			seeds[b.id] = scripted(b.frame.with(make([]int, b.files)...))
		}
	}
	return seeds
}

func FuzzFrames(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { drive(t, data) })
}

// TestScriptsWithRandomDamageAreSurvived is FuzzFrames on a fixed sequence of inputs.
func TestScriptsWithRandomDamageAreSurvived(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var corpus [][]byte
	seeds := frameSeeds()
	for _, name := range sortedKeys(seeds) {
		corpus = append(corpus, seeds[name])
	}
	whole, head := seeds["conversation"], len(seeds["hello"])
	for range 1500 {
		data := bytes.Clone(whole)
		if random.IntN(4) == 0 {
			data = append(data, corpus[random.IntN(len(corpus))]...)
		}
		// The handshake stays whole most of the time, or nothing behind it would be reached.
		from := head
		if random.IntN(20) == 0 {
			from = 0
		}
		for range 1 + random.IntN(8) {
			data[from+random.IntN(len(data)-from)] = byte(random.Uint32())
		}
		drive(t, data[:from+random.IntN(len(data)-from+1)])
	}
}

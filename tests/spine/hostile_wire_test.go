// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

// wire connects to guest a's socket without a word.
func (d *daemon) wire(t *testing.T) *vfio.Wire {
	t.Helper()
	w, err := vfio.DialWire(d.socket("a"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() }) // the device may have closed it
	if err := w.SetDeadline(time.Now().Add(testguest.Patience)); err != nil {
		t.Fatal(err)
	}
	return w
}

// Whatever comes, in whatever pieces, and wherever it ends: the next client is served.
func TestAClientThatTalksNonsenseIsDroppedAndTheNextIsServed(t *testing.T) {
	version := frame(vfio.CmdVersion, vfio.VersionRequest())
	huge := vfio.Header{ID: 1, Command: vfio.CmdVersion, Size: 1<<32 - 1}.Encode()
	short := vfio.Header{ID: 1, Command: vfio.CmdVersion, Size: 15}.Encode()
	for name, bytes := range map[string][]byte{
		"nothing":                      nil,
		"half a header":                version[:7],
		"half a version":               version[:len(version)-5],
		"a size below the header":      short,
		"a size of 4 GiB":              huge,
		"a command before the version": frame(vfio.CmdDeviceGetInfo, make([]byte, 16)),
		"a reply":                      vfio.Header{ID: 1, Command: 1, Size: 16, Flags: vfio.FlagReply}.Encode(),
		"a version without an end":     frame(vfio.CmdVersion, append(make([]byte, 4), `{"capabilities":{`...)),
		"a version of another major":   frame(vfio.CmdVersion, []byte{9, 0, 0, 0, 0}),
		"a version of two bytes":       frame(vfio.CmdVersion, []byte{0, 0}),
		"capabilities that are a list": frame(vfio.CmdVersion, append(make([]byte, 4), "{\"capabilities\":[1]}\x00"...)),
		"numbers beyond all bounds": frame(vfio.CmdVersion, append(make([]byte, 4),
			"{\"capabilities\":{\"max_msg_fds\":-1,\"max_dma_maps\":1e400,\"pgsizes\":1}}\x00"...)),
		"deeply nested":            frame(vfio.CmdVersion, append(append(make([]byte, 4), nest(2000)...), 0)),
		"a version and half a map": append(append([]byte{}, version...), frame(vfio.CmdDMAMap, make([]byte, 32))[:20]...),
		"two versions":             append(append([]byte{}, version...), version...),
		"random bytes":             random(4096),
	} {
		t.Run(name, func(t *testing.T) {
			d := shared(t)
			w := d.wire(t)
			if err := w.Send(bytes); err != nil && len(bytes) > 0 {
				t.Logf("the device closed at once: %v", err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			d.served(t)
		})
	}
}

func frame(cmd uint16, payload []byte) []byte {
	h := vfio.Header{ID: 1, Command: cmd, Size: uint32(vfio.HeaderSize + len(payload))}
	return append(h.Encode(), payload...)
}

func nest(depth int) []byte {
	b := make([]byte, 2*depth)
	for i := range depth {
		b[i], b[2*depth-1-i] = '[', ']'
	}
	return b
}

func random(n int) []byte {
	rng := rand.New(rand.NewPCG(11, 12))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// shared returns one daemon for all subtests of a test, with a neighbour who must not notice them.
func shared(t *testing.T) *daemon {
	t.Helper()
	d := startDaemon(t, "poll")
	d.neighbour()
	return d
}

// served fails the test unless a new client of guest a is served in time.
func (d *daemon) served(t *testing.T) {
	t.Helper()
	d.alive()
	deadline := time.Now().Add(testguest.Patience)
	for {
		m, err := testguest.Boot(d.socket("a"), guestOptions("a"))
		if err == nil {
			if err := m.PowerOff(); err != nil {
				t.Error(err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no new client is served: %v", err)
		}
		time.Sleep(5 * time.Millisecond) // the one before is being let go
	}
}

// Requests that are well framed and wrong get an error reply, and the session goes on.
func TestAWrongRequestGetsAnErrorAndTheSessionGoesOn(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		g := d.guest("a")
		for name, f := range map[string][]byte{
			"command 0":                    frame(0, nil),
			"command 14":                   frame(14, make([]byte, 16)),
			"command 65535":                frame(65535, nil),
			"an info of 4 bytes":           frame(vfio.CmdDeviceGetInfo, make([]byte, 4)),
			"a region of 2^32-1":           frame(vfio.CmdGetRegionInfo, words(32, 0, 1<<32-1, 0, 0, 0, 0, 0)),
			"a region info that is short":  frame(vfio.CmdGetRegionInfo, words(32, 0)),
			"an interrupt of 99":           frame(vfio.CmdGetIRQInfo, words(16, 0, 99, 0)),
			"vectors beyond the end":       frame(vfio.CmdSetIRQs, words(20, 0x21, 2, 2, 9)),
			"vectors that wrap":            frame(vfio.CmdSetIRQs, words(20, 0x21, 2, 1<<32-1, 2)),
			"vectors of no kind":           frame(vfio.CmdSetIRQs, words(20, 0x20, 2, 0, 1)),
			"booleans that are not there":  frame(vfio.CmdSetIRQs, words(20, 0x22, 2, 0, 3)),
			"a read of 2^32-1 bytes":       frame(vfio.CmdRegionRead, words(0, 0, 1, 1<<32-1)),
			"a read that wraps":            frame(vfio.CmdRegionRead, words(1<<32-4, 1<<32-1, 1, 8)),
			"a read of no region":          frame(vfio.CmdRegionRead, words(0, 0, 77, 4)),
			"a read that is short":         frame(vfio.CmdRegionRead, words(0, 0)),
			"a write shorter than it says": frame(vfio.CmdRegionWrite, words(0, 0, 1, 400, 1)),
			"a write longer than it says":  frame(vfio.CmdRegionWrite, words(0, 0, 1, 4, 1, 2, 3)),
			"an unmap of nothing":          frame(vfio.CmdDMAUnmap, words(24, 0, 0x5000, 0, 0x1000, 0)),
			"an unmap of half a mapping":   frame(vfio.CmdDMAUnmap, words(24, 0, 1<<20, 0, 0x1000, 0)),
			"a map of no bytes":            frame(vfio.CmdDMAMap, words(32, 3, 0, 0, 0, 9, 0, 0)),
			"a map off its page":           frame(vfio.CmdDMAMap, words(32, 3, 0, 0, 1, 9, 4096, 0)),
			"a map that wraps":             frame(vfio.CmdDMAMap, words(32, 3, 0, 0, 0, 1<<32-1, 0, 1<<32-1)),
			"a map of memory again":        frame(vfio.CmdDMAMap, words(32, 3, 0, 0, 1<<20, 0, 4096, 0)),
			"a map with a flag of nothing": frame(vfio.CmdDMAMap, words(32, 1<<31, 0, 0, 0, 9, 4096, 0)),
			"a DMA read":                   frame(vfio.CmdDMARead, words(0, 0, 4, 0)),
			"many writes that are none":    frame(vfio.CmdRegionWriteMulti, words(1<<32-1, 1<<32-1)),
			"one write that is not there":  frame(vfio.CmdRegionWriteMulti, words(1, 0)),
			"a migration":                  frame(17, make([]byte, 16)),
		} {
			reply := exchangeFrame(t, g, f)
			if reply.Flags&vfio.FlagError == 0 || reply.Errno == 0 {
				t.Errorf("%s: flags %#x, errno %d; want an error", name, reply.Flags, reply.Errno)
			}
		}
		if _, err := g.Dev.QueryPort(1); err != nil {
			t.Errorf("a command afterwards: %v", err)
		}
		n.check()
	})
}

func words(v ...uint32) []byte {
	var b []byte
	for _, w := range v {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

// exchangeFrame sends a frame in the guest's session, between two requests of its own, and returns the answer.
func exchangeFrame(t *testing.T, g *testguest.Guest, f []byte, fds ...int) *vfio.Frame {
	t.Helper()
	w := g.Func.Wire()
	if err := w.SetDeadline(time.Now().Add(testguest.Patience)); err != nil {
		t.Fatal(err)
	}
	if err := w.Send(f, fds...); err != nil {
		t.Fatal(err)
	}
	reply, err := w.Receive()
	if err != nil {
		t.Fatalf("the answer to % x...: %v", f[:min(len(f), 24)], err)
	}
	reply.CloseFDs()
	return reply
}

// Files of all kinds are no memory, and are closed.
func TestAFileThatIsNoMemoryIsRefusedAndLeftAlone(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	g := d.guest("a")
	files := map[string]int{"a directory": open(t, t.TempDir(), unix.O_RDONLY)}
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	files["a pipe"], files["the pipe's other end"] = pipe[0], pipe[1]
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	files["a file that is too short"] = open(t, short, unix.O_RDWR)
	files["a file that is not writable"] = open(t, short, unix.O_RDONLY)
	files["nothing"] = open(t, "/dev/null", unix.O_RDWR)
	before := d.usage(t)
	for name, fd := range files {
		err := g.Func.MapDMA(vfio.DMAMap{Addr: 9 << 32, Size: 1 << 20, FD: fd, Flags: vfio.DMARead | vfio.DMAWrite})
		if err == nil { // it may be known as a piece that cannot be reached
			if err := g.Func.UnmapDMA(9<<32, 1<<20); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	for range 20 { // descriptors that nobody asked for
		exchangeFrame(t, g, frame(vfio.CmdDeviceGetInfo, words(16, 0, 0, 0)), g.RAM.FD(), g.RAM.FD(), g.RAM.FD())
	}
	if after := d.usage(t); after.fds != before.fds {
		t.Errorf("the daemon holds %d descriptors, %d before", after.fds, before.fds)
	}
	if _, err := g.Dev.QueryPort(1); err != nil {
		t.Errorf("a command afterwards: %v", err)
	}
	n.check()
}

func open(t *testing.T, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestManyRegisterWritesInOneMessageAreExecutedInOrder(t *testing.T) {
	d := startDaemon(t, "trap")
	g := d.guest("a")
	registers, _ := bars(g)
	at := func(name string, v uint32) vfio.MultiWrite {
		return vfio.MultiWrite{Region: registers, Offset: uint64(g.Const(name)), Data: words(v)}
	}
	dsr := g.Dev.DSRAddr()
	err := g.Func.RegionWriteMulti([]vfio.MultiWrite{
		at("PVRDMA_REG_IMR", ^uint32(0)), at("PVRDMA_REG_CTL", g.Const("PVRDMA_DEVICE_CTL_RESET")),
		at("PVRDMA_REG_DSRLOW", uint32(dsr)), at("PVRDMA_REG_DSRHIGH", uint32(dsr>>32)),
		at("PVRDMA_REG_IMR", 0), at("PVRDMA_REG_CTL", g.Const("PVRDMA_DEVICE_CTL_ACTIVATE")),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Dev.QueryPort(1); err != nil {
		t.Errorf("a command after the whole bring-up in one message: %v", err)
	}
	g.Reboot()
}

// The doorbell memory is the daemon's own: no guest may take it away from under it.
func TestTheDoorbellMemoryCannotBeResized(t *testing.T) {
	d := startDaemon(t, "poll")
	g := d.guest("a")
	_, doorbells := bars(g)
	info, err := g.Func.RegionInfo(doorbells)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(info.FD)
	for _, size := range []int64{0, 4096, 1 << 30} {
		if err := unix.Ftruncate(info.FD, size); err == nil {
			t.Errorf("the doorbell memory is %d bytes long now", size)
		}
	}
	e := g.Open().Endpoint(testguest.Shape{})
	e.ConnectTo(e.Address())
	e.Sent(e.Write(e.Address(), 0, 8), "SUCCESS")
}

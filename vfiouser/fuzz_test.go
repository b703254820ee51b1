// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
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

// script turns bytes into messages, most of them nearly right: a header of six bytes (command, flags, what to
// lie about in the size, number of files, two of the payload's length), then the payload.
func script(data []byte, send func(p []byte, fds int) bool) {
	for len(data) >= 6 {
		command, flags, lie, fds := data[0], data[1], int8(data[2]), data[3]
		n := min(int(data[4])|int(data[5])<<8, len(data)-6)
		body := data[6:][:n]
		data = data[6+n:]
		size := uint32(headerSize + n)
		if lie%8 == 7 {
			size += uint32(int32(lie))
		}
		p := make([]byte, headerSize)
		header{id: uint16(n), command: Command(command % 24), size: size, flags: uint32(flags & 0x3f)}.put(p)
		if flags>>6 == 3 {
			p[int(lie)&15] ^= 1 << (lie >> 4 & 7)
		}
		if !send(append(p, body...), int(fds%20)) {
			return
		}
	}
}

// drive plays a client that sends data's script, and checks what has to be true whatever it says: the device is
// called within the promises made to it (recordingDevice panics otherwise), nothing is called after Close, the
// session ends when the client does, and all file descriptors are closed.
func drive(t testing.TB, data []byte) {
	before := countFDs(t)
	conn, served := socketPair(t)
	eventFD, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	device := newRecordingDevice(eventFD)
	var seen recorder
	s := newSession(served, Peer{}, Config{
		Open:             func(*Session) (Device, error) { return device, nil },
		Observer:         &seen,
		HandshakeTimeout: patience, WriteTimeout: patience,
	})
	go s.run()
	read := make(chan struct{})
	go func() { // an honest client in this: it reads
		defer close(read)
		var sink [4096]byte
		for {
			if _, err := conn.Read(sink[:]); err != nil {
				return
			}
		}
	}()

	_ = conn.SetWriteDeadline(time.Now().Add(patience))
	script(data, func(p []byte, fds int) bool {
		s.Trigger(IRQIndex(fds%5), uint32(fds%4))
		var oob []byte
		if fds > 0 {
			oob = unix.UnixRights(slices.Repeat([]int{eventFD}, fds)...)
		}
		_, _, err := conn.WriteMsgUnix(p, oob, nil)
		return err == nil
	})
	_ = conn.CloseWrite()
	select {
	case <-s.done:
	case <-time.After(patience):
		t.Fatal("the session does not end")
	}
	<-read
	_ = conn.Close()
	_ = unix.Close(eventFD)

	for _, p := range seen.panics {
		t.Errorf("panic: %v\n%s", p.Value, p.Stack)
	}
	if calls := device.methods(); s.opened && (len(calls) == 0 || calls[len(calls)-1] != "Close") {
		t.Errorf("the last call is not Close: %v", calls)
	}
	if after := countFDs(t); after != before {
		t.Errorf("%d file descriptors are open, %d before", after, before)
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

// seeds returns scripts that reach every handler.
func seeds() [][]byte {
	version := frame{command: CommandVersion, body: versionBody(0, 0, qemuVersionData+"\x00")}
	one := make([]int, 1)
	all := scripted(
		version, mapFrame(3, 0, 0, 0x10000).with(one...), mapFrame(1, 0, 0x10000, 0x1000),
		command(CommandDeviceGetInfo, 0), frame{command: CommandDeviceGetInfo, body: words(16, 0, 0, 0)},
		regionInfoFrame(32, 0), regionInfoFrame(48, 1), regionInfoFrame(1024, 2), regionInfoFrame(32, 7),
		irqInfoFrame(IRQMSIX), irqFrame(assignFlags, IRQMSIX, 0, 3).with(make([]int, 3)...),
		readFrame(RegionConfig, 0, 256), writeFrame(RegionBAR1, 0x1c, 0, 0, 0, 0), posted(writeFrame(RegionBAR2, 0, 1, 2, 3, 4)),
		posted(multiFrame(access{0, RegionBAR0, 4}, access{8, RegionBAR1, 8}, access{0, RegionBAR3, 1})),
		multiFrame(access{0, RegionBAR0, 1}), irqFrame(noneTrigger, IRQMSIX, 0, 3), irqFrame(noneTrigger, IRQMSIX, 0, 0),
		irqFrame(irqDataBool|irqActionMask, IRQMSIX, 0, 3, 1, 0, 1), irqFrame(irqDataNone|irqActionUnmask, IRQMSIX, 0, 3),
		unmapFrame(0, 0, 0x10000), unmapFrame(dmaUnmapAll, 0, 0), frame{command: CommandDeviceReset},
		command(CommandDeviceFeature, 8), command(CommandDMARead, 16),
	)
	out := [][]byte{nil, all, scripted(version), scripted(version, frame{command: CommandDeviceReset})}
	for _, b := range openFaults() {
		if b.files < 20 && len(b.frame.body) < 8192 {
			out = append(out, scripted(version, b.frame.with(make([]int, b.files)...)))
		}
	}
	return out
}

func FuzzFrames(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) { drive(t, data) })
}

// TestScriptsWithRandomDamageAreSurvived is FuzzFrames on a fixed sequence of inputs.
func TestScriptsWithRandomDamageAreSurvived(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	corpus := seeds()
	version := len(corpus[2])
	for range 1500 {
		data := bytes.Clone(corpus[1])
		if random.IntN(4) == 0 {
			data = append(data, corpus[random.IntN(len(corpus))]...)
		}
		// The handshake stays whole most of the time, or nothing behind it would be reached.
		from := version
		if random.IntN(20) == 0 {
			from = 0
		}
		for range 1 + random.IntN(8) {
			data[from+random.IntN(len(data)-from)] = byte(random.Uint32())
		}
		drive(t, data[:from+random.IntN(len(data)-from+1)])
	}
}

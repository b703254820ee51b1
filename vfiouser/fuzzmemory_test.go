// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

// followingDevice is a memoryDevice that follows pointers, as devices do: a write of 8 bytes to BAR0 is an address in
// the guest's memory, where it reads another address, and adds 1 to the 8 bytes at that.
type followingDevice struct{ *memoryDevice }

// maxFollowed is the most pointers of one chain. The guest rewrites them meanwhile, so a chain may have no end.
const maxFollowed = 8

func (d *followingDevice) WriteRegion(index RegionIndex, off uint64, p []byte) error {
	if err := d.memoryDevice.WriteRegion(index, off, p); err != nil || index != RegionBAR0 || len(p) != 8 {
		return err
	}
	addr, word := binary.LittleEndian.Uint64(p), make([]byte, 8)
	for range maxFollowed {
		if err := d.space.Read(addr, word); err != nil {
			return err
		}
		next := binary.LittleEndian.Uint64(word)
		binary.LittleEndian.PutUint64(word, next+1)
		if err := d.space.Write(addr, word); err != nil {
			return err
		}
		addr = next
	}
	return nil
}

// Close closes the guest's memory with the device.
func (d *followingDevice) Close() {
	_ = d.space.Close()
	d.recordingDevice.Close()
}

// meddle rewrites a guest's memory, and takes it away and gives it back, until stop.
func meddle(t testing.TB, memory int, seed uint64, stop *atomic.Bool) {
	random := rand.New(rand.NewPCG(seed, 1))
	word := make([]byte, 8)
	for i := 1; !stop.Load(); i++ {
		binary.LittleEndian.PutUint64(word, random.Uint64N(1<<20)&^7)
		_, err := unix.Pwrite(memory, word, int64(random.Uint64N(1<<20)))
		if i%64 == 0 {
			err = unix.Ftruncate(memory, int64(random.IntN(2))<<20)
		}
		if err != nil {
			t.Errorf("rewrite memory: %v", err)
			return
		}
	}
}

// playSharedMemory plays a script to a device that follows pointers in the guest's memory, which another thread rewrites
// and truncates. The memory of another guest, at the same addresses, must stay as it is.
func playSharedMemory(t testing.TB, data []byte) {
	before := takeCensus(t)
	conn, served := socketPair(t)
	p := newPeer(t, conn)
	domain := guestmem.NewDomain()
	other := domain.NewSpace("other")
	untouched := make([]byte, 1<<16)
	if err := other.MapBytes(0, untouched, guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var meddler sync.WaitGroup
	meddler.Go(func() { meddle(t, p.memory, uint64(len(data)), &stop) })
	d := newRecordingDevice(p.memory)

	p.playWhile(served, &followingDevice{&memoryDevice{d, domain.NewSpace("guest")}}, d, data, func() {
		stop.Store(true)
		meddler.Wait()
	})

	if !bytes.Equal(untouched, make([]byte, len(untouched))) {
		t.Error("another guest's memory has changed")
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	before.check(t)
}

func FuzzSharedMemory(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { playSharedMemory(t, data) })
}

// memorySeeds returns the scripts from which FuzzSharedMemory starts.
func memorySeeds() map[string][]byte {
	pointer := func(addr uint64) frame {
		return writeFrame(RegionBAR0, 0, binary.LittleEndian.AppendUint64(nil, addr)...)
	}
	whole := mapFrame(3, 0, 0, 1<<20)
	withMemory := func(f frame) []byte {
		step := scripted(f)
		step[3] = 1 | scriptNoEvent
		return step
	}
	join := func(steps ...[]byte) []byte { return bytes.Join(steps, nil) }
	follow := scripted(pointer(0), posted(pointer(0x1000)), pointer(1<<20-8), pointer(1<<20), pointer(1<<63))
	many := scripted(multiFrame(burst()...))
	storm := bytes.Repeat(follow, 100)
	return map[string][]byte{
		"follow":    join(scripted(hello()), withMemory(whole), follow, many, follow),
		"storm":     join(scripted(hello()), withMemory(whole), storm, scripted(unmapFrame(0, 0, 1<<20)), withMemory(whole), storm),
		"unmapped":  join(scripted(hello()), withMemory(whole), follow, scripted(unmapFrame(dmaUnmapAll, 0, 0)), follow),
		"read-only": join(scripted(hello()), withMemory(mapFrame(1, 0, 0, 1<<20)), follow),
		"in-pieces": join(scripted(hello()), withMemory(mapFrame(3, 0x1000, 0, 0x1000)), withMemory(mapFrame(3, 0, 0x1000, 0x1000)),
			follow, scripted(unmapFrame(0, 0, 0x1000)), follow),
		"no-file":  join(scripted(hello(), whole), follow),
		"too-long": join(scripted(hello()), withMemory(mapFrame(3, 0, 0, 1<<21)), follow),
		"doorbells": join(scripted(hello(), regionInfoFrame(80, 2), writeFrame(RegionBAR2, 0x1000, 1, 2, 3, 4),
			readFrame(RegionBAR2, 0x1000, 8))),
	}
}

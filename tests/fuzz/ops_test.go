// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// op is one kind of step of a script.
type op func(w *world, s *script)

// maxSteps bounds a script.
const maxSteps = 64

// run runs a script whose steps are of some kinds.
func (w *world) run(s *script, ops ...op) {
	for range maxSteps {
		if s.done() {
			return
		}
		ops[s.below(len(ops))](w, s)
	}
}

// patch writes a number somewhere into a page that means something.
func patch(w *world, s *script) {
	width := 1 << (s.u8() % 4)
	at := w.page(s) + uint64(s.u16())%inproc.PageSize&^uint64(width-1)
	b := binary.LittleEndian.AppendUint64(nil, w.number(s))
	copy(w.Bytes(at, width), b)
}

// patchDirectory writes an entry near the beginning of a page: those of directories are there.
func patchDirectory(w *world, s *script) {
	binary.LittleEndian.PutUint64(w.Bytes(w.page(s)+uint64(s.u8()%8)*8, 8), w.number(s))
}

// patchDSR writes a field of the shared region.
func patchDSR(w *world, s *script) { w.field(s, w.DSR) }

// field writes a number into one of a structure's fields, wherever it may be.
func (w *world) field(s *script, v layout.View) {
	leaves := fieldsOf(w.L, v.Name())
	path := leaves[int(s.u8())%len(leaves)]
	n := w.L.Field(v.Name(), path).Size
	if n <= 8 && n&(n-1) == 0 {
		v.Set(path, w.number(s))
		return
	}
	v.SetBytes(path, s.bytes(n))
}

// leavesOf remembers fields: to sort them for each step would take longer than the step.
var leavesOf = map[string][]string{}

func fieldsOf(l *layout.Layout, name string) []string {
	if leavesOf[name] == nil {
		leavesOf[name] = slices.DeleteFunc(l.Leaves(name), func(p string) bool {
			return strings.HasPrefix(p, "caps.") // the device's to write
		})
	}
	return leavesOf[name]
}

// load tells the device the address of its shared region, or another one, and switches it on. What is refused moves one
// counter.
func load(w *world, s *script) {
	addr := w.DSRAddr
	if s.u8()%4 == 3 {
		addr = w.number(s)
	}
	w.SetReg("DSRLOW", uint32(addr))
	w.verdict(func() { w.SetReg("DSRHIGH", uint32(addr>>32)) })
	w.verdict(func() { w.SetReg("CTL", w.Const("PVRDMA_DEVICE_CTL_ACTIVATE")) })
}

// verdict runs a register write that sets ERR, and compares ERR with the counters.
func (w *world) verdict(write func()) {
	w.t.Helper()
	if w.quiet {
		w.Settle()
	}
	w.Seen.Take()
	write()
	err := w.Reg("ERR")
	if !w.quiet {
		return
	}
	moved := w.Seen.Take()
	if n := rejections(moved); (err != 0) != (n == 1) || n > 1 {
		w.t.Errorf("ERR is %d, and the counters that moved are %v", err, moved)
	}
}

// control writes CTL, with a value that need not be an operation.
func control(w *world, s *script) {
	v := uint32(w.number(s))
	if s.u8()%2 == 0 {
		v = uint32(s.u8() % 4)
	}
	w.verdict(func() { w.SetReg("CTL", v) })
}

// reset is the machine's reset, and then a driver's start.
func reset(w *world, _ *script) {
	if err := w.Device.Reset(); err != nil {
		w.t.Error(err)
	}
	w.BusMaster(true)
}

// mastering takes DMA away and gives it back.
func mastering(w *world, s *script) {
	w.BusMaster(s.u8()%2 == 0)
}

// unmap takes a piece of the guest's memory away, and gives it back at once or never.
func unmap(w *world, s *script) {
	r := w.RAM.Regions()[s.below(2)]
	if w.Device.UnmapDMA(r.Addr, r.Size) != nil {
		return // it was taken before
	}
	if s.u8()%2 == 0 {
		m := vfiouser.DMAMap{
			Addr: r.Addr, Size: r.Size, FD: w.RAM.FD(), Offset: r.Offset, Flags: vfiouser.DMARead | vfiouser.DMAWrite,
		}
		if err := w.Device.MapDMA(m); err != nil {
			w.t.Error(err)
		}
	}
}

// doorbell rings at any place, by a message or by a store into the mapped page.
func doorbell(w *world, s *script) {
	w.busy = true
	page, off, v := uint32(s.u8()%inproc.MaxUAR), uint32(s.u8()%4)*4, uint32(s.u8()%4+1)<<29|uint32(s.u8()%8)
	switch s.u8() % 4 {
	case 0:
		v = uint32(w.number(s))
	case 1:
		off = uint32(s.u16()) % inproc.PageSize &^ 3
	}
	if w.uar != nil && page != 0 && s.u8()%2 == 0 {
		ram.Store32(w.uar, int(page*inproc.PageSize+off), v)
		return
	}
	w.Doorbell(page, off, v)
}

// storm rings more often than the device remembers.
func storm(w *world, s *script) {
	w.busy = true
	v := w.Const("PVRDMA_UAR_QP_SEND") | uint32(s.u8()%8)
	for range 1100 {
		w.Doorbell(1, 0, v)
	}
}

// wait lets the worker catch up.
func wait(w *world, _ *script) { w.Settle() }

// sizes are the regions' sizes: a server of vfio-user checks a client's accesses against them.
func (w *world) access(s *script) (index vfiouser.RegionIndex, off uint64, n int) {
	index = pick(s, []vfiouser.RegionIndex{
		vfiouser.RegionBAR0, vfiouser.RegionBAR1, vfiouser.RegionBAR1, vfiouser.RegionBAR2, vfiouser.RegionConfig,
	})
	size := w.Regions[index].Size
	off = uint64(s.u16())
	if s.u8()%2 == 0 {
		off = off % 16 * 4 // where the registers are
	}
	off %= size
	n = 4
	if s.u8()%2 == 0 {
		n = 1 + s.below(16)
	}
	return index, off, int(min(uint64(n), size-off))
}

// write and read access any region at any offset.
func write(w *world, s *script) {
	index, off, n := w.access(s)
	p := s.bytes(n)
	if s.u8()%2 == 0 {
		copy(p, binary.LittleEndian.AppendUint64(nil, w.number(s)))
	}
	w.Store(index, off, p)
}

func read(w *world, s *script) {
	index, off, n := w.access(s)
	w.Load(index, off, n)
}

// rewrite starts a thread that writes into the guest's memory for as long as the script runs.
func (w *world) rewrite(seed uint64) {
	w.quiet = false
	mem, x := w.RAM.All(), seed|1
	pages := slices.Clone(w.pages)
	offsets := make([]int, len(pages))
	for i, p := range pages {
		for _, r := range w.RAM.Regions() {
			if p >= r.Addr && p-r.Addr < r.Size {
				offsets[i] = int(r.Offset + p - r.Addr)
			}
		}
	}
	w.threads.Go(func() {
		for n := 0; !w.stop.Load(); n++ {
			x = x*6364136223846793005 + 1442695040888963407
			at := offsets[x>>33%uint64(len(offsets))] + int(x>>45%1024)*4&^3
			v := uint32(x >> 20)
			if n%2 == 0 { // a small number: indices, handles, states
				v %= 64
			}
			ram.Store32(mem, at%len(mem), v)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

// alias is memory of a guest that its device sees at other addresses, page by page, so that a page can be taken away by
// itself, as a virtual IOMMU does.
type alias struct {
	r      *ground
	frames []uint64 // what the guest's processors see
	there  []uint64 // what the device sees
	dir    *driver.PageDir
	flags  uint32
}

func (r *ground) alias(n int) *alias {
	r.t.Helper()
	frames, err := r.g.RAM.Pages(n)
	if err != nil {
		r.t.Fatal(err)
	}
	m := &alias{r: r, frames: frames, flags: vfio.DMARead | vfio.DMAWrite}
	for i := range frames {
		m.there = append(m.there, uint64(elsewhere+i*ram.PageSize))
		m.mapPage(i, frames[i])
	}
	if m.dir, err = driver.NewPageDir(r.g.L, r.g.RAM, m.there); err != nil {
		r.t.Fatal(err)
	}
	return m
}

// mapPage maps a frame as page i.
func (m *alias) mapPage(i int, frame uint64) {
	m.r.t.Helper()
	g := m.r.g
	err := g.Func.MapDMA(vfio.DMAMap{
		Addr: m.there[i], Size: ram.PageSize, Offset: fileOffset(g, frame), FD: g.RAM.FD(), Flags: m.flags,
	})
	if err != nil {
		m.r.t.Fatal(err)
	}
}

// taking is how pages of an object are taken away.
type taking struct {
	name string
	// first says that only the first page is; all pages are otherwise.
	first bool
	// instead says that other memory takes their place, for the device to read only, or to write to.
	instead uint32
}

var takings = []taking{
	{"unmapped", false, 0},
	{"one page unmapped", true, 0},
	{"other memory in its place", false, vfio.DMARead | vfio.DMAWrite},
	{"read-only memory in its place", false, vfio.DMARead},
}

// take takes pages away and returns what was mapped in their place.
func (w taking) take(m *alias) (instead []byte) {
	m.r.t.Helper()
	n := len(m.there)
	if w.first {
		n = 1
	}
	for i := range n {
		if err := m.r.g.Func.UnmapDMA(m.there[i], ram.PageSize); err != nil {
			m.r.t.Fatal(err)
		}
	}
	if w.instead == 0 {
		return nil
	}
	other, err := m.r.g.RAM.Page()
	if err != nil {
		m.r.t.Fatal(err)
	}
	m.flags = w.instead
	for i := range n {
		m.mapPage(i, other)
	}
	if instead, err = m.r.g.RAM.Bytes(other, ram.PageSize); err != nil {
		m.r.t.Fatal(err)
	}
	return instead
}

// give unmaps what is left.
func (w taking) give(m *alias) {
	m.r.t.Helper()
	for i := range m.there {
		if w.instead == 0 && (i == 0 || !w.first) {
			continue
		}
		if err := m.r.g.Func.UnmapDMA(m.there[i], ram.PageSize); err != nil {
			m.r.t.Fatal(err)
		}
	}
}

// underObject is an object in memory that is taken away: what makes it in there, and what is checked afterwards.
type underObject struct {
	name string
	make func(m *alias) (check func())
}

// awaitEvent waits for an event of an object and lets others pass.
func (r *ground) awaitEvent(event string, info uint32) {
	r.t.Helper()
	for {
		e, err := r.g.Dev.WaitAsync(testguest.Patience)
		if err != nil {
			r.t.Errorf("event %s of %d: %v", event, info, err)
			return
		}
		if e.Type == r.g.Const("PVRDMA_EVENT_"+event) && e.Info == info {
			return
		}
	}
}

// register registers an alias in the protection domain of an endpoint. The function that is returned takes it back.
func (m *alias) register(e *testguest.Endpoint) (start uint64, mr driver.MR, end func()) {
	m.r.t.Helper()
	p := m.r.mr()
	p.PDir, p.PD, p.Length, p.Chunks = m.dir.Addr(), e.PD.Handle, uint64(len(m.there))*ram.PageSize, uint32(len(m.there))
	mr, err := m.r.g.Dev.CreateMR(p)
	if err != nil {
		m.r.t.Fatal(err)
	}
	return p.Start, mr, func() {
		if err := m.r.g.Dev.DestroyMR(mr.Handle); err != nil {
			m.r.t.Error(err)
		}
	}
}

// pair returns two connected endpoints of the guest.
func (r *ground) pair() (a, b *testguest.Endpoint) {
	r.t.Helper()
	a, b = r.p.Endpoint(testguest.Shape{}), r.p.Endpoint(testguest.Shape{})
	testguest.Connect(a, b)
	return a, b
}

func underObjects() []underObject {
	return []underObject{
		{"queue pair", func(m *alias) func() {
			p := m.r.qp()
			p.PDir = m.dir.Addr()
			_, handle, err := m.r.g.Dev.CreateQP(p)
			if err != nil {
				m.r.t.Fatal(err)
			}
			return func() {
				m.r.awaitEvent("QP_FATAL", handle)
				if err := m.r.g.Dev.DestroyQP(handle); err != nil {
					m.r.t.Error(err)
				}
			}
		}},
		{"completion queue", func(m *alias) func() {
			p := m.r.cq()
			p.PDir = m.dir.Addr()
			handle, _, err := m.r.g.Dev.CreateCQ(p)
			if err != nil {
				m.r.t.Fatal(err)
			}
			return func() {
				m.r.awaitEvent("CQ_ERR", handle)
				if err := m.r.g.Dev.DestroyCQ(handle); err != nil {
					m.r.t.Error(err)
				}
			}
		}},
		{"memory region that is read from", regionUnder("RDMA_WRITE", true, "LOC_PROT_ERR", "")},
		{"memory region that a READ goes to", regionUnder("RDMA_READ", true, "LOC_PROT_ERR", "")},
		{"memory region that a peer writes to", regionUnder("RDMA_WRITE", false, "REM_ACCESS_ERR", "QP_ACCESS_ERR")},
		{"memory region that a peer reads", regionUnder("RDMA_READ", false, "REM_ACCESS_ERR", "QP_ACCESS_ERR")},
		{"memory region of a receive", receiveUnder},
	}
}

// regionUnder is a region in memory that is taken away, the requester's own or the peer's.
func regionUnder(op string, own bool, status, event string) func(m *alias) func() {
	return func(m *alias) func() {
		a, b := m.r.pair()
		owner := b
		if own {
			owner = a
		}
		start, mr, end := m.register(owner)
		return func() {
			wr := a.Op(op, b.Address(), 0, 256)
			if own {
				wr.SGE = []verbs.SGE{{Addr: start, Length: 256, LKey: mr.LKey}}
			} else {
				wr.RemoteAddr, wr.RKey = start, mr.RKey
			}
			before := bytes.Clone(b.MR.Mem)
			a.Sent(a.Post(wr), status)
			if !bytes.Equal(before, b.MR.Mem) {
				m.r.t.Error("the peer's memory changed")
			}
			if event != "" {
				m.r.awaitEvent(event, b.QP.Handle)
			}
			end()
			a.Destroy()
			b.Destroy()
		}
	}
}

// receiveUnder is a region that a message is received into.
func receiveUnder(m *alias) func() {
	a, b := m.r.pair()
	start, mr, end := m.register(b)
	if err := b.QP.PostRecv(verbs.RecvWR{
		WRID: 77, SGE: []verbs.SGE{{Addr: start, Length: 256, LKey: mr.LKey}},
	}); err != nil {
		m.r.t.Fatal(err)
	}
	return func() {
		a.Sent(a.Post(a.Op("SEND", testguest.Address{}, 0, 256)), "REM_OP_ERR")
		b.Received(77, "LOC_PROT_ERR")
		end()
		a.Destroy()
		b.Destroy()
	}
}

func TestMemoryThatIsTakenEndsWhatLiesThereAndNothingElse(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		r := newGround(t, d)
		r.e.ConnectTo(r.e.Address())
		for _, o := range underObjects() {
			for _, w := range takings {
				t.Run(o.name+", "+w.name, func(t *testing.T) {
					r.t = t
					m := r.alias(8)
					check := o.make(m)
					instead := w.take(m)
					testguest.Pattern{Seed: 4}.Fill(instead)
					check()
					if err := (testguest.Pattern{Seed: 4}).Check(instead); err != nil {
						t.Errorf("the memory in its place: %v", err)
					}
					r.e.Sent(r.e.Write(r.e.Address(), 0, 64), "SUCCESS")
					w.give(m)
				})
			}
		}
		n.check()
	})
}

// What the driver shares with the device since its probe cannot be replaced: the device ends, and says so.
func TestTheProbesMemoryThatIsTakenEndsTheDevice(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		for name, field := range map[string]string{
			"shared region": "", "command slot": "cmd_slot_dma", "response slot": "resp_slot_dma",
			"async event ring": "async_ring_pages.pdir_dma", "completion event ring": "cq_ring_pages.pdir_dma",
		} {
			t.Run(name, func(t *testing.T) {
				r := newGround(t, d)
				defer r.g.Stop()
				m := r.alias(8)
				dsr := r.g.Dev.DSRAddr()
				switch {
				case field == "":
					m.remap(0, dsr)
					dsr = m.there[0]
				case len(name) > 10 && name[len(name)-4:] == "ring":
					r.g.Dev.DSR().Set(field, m.dir.Addr())
				default:
					m.remap(0, r.g.Dev.DSR().Get(field))
					r.g.Dev.DSR().Set(field, m.there[0])
				}
				if err := r.g.Dev.WriteDSR(dsr); err != nil {
					t.Fatal(err)
				}
				if err := r.g.Dev.Activate(); err != nil {
					t.Fatal(err)
				}

				if err := r.g.Func.UnmapDMA(m.there[0], ram.PageSize); err != nil {
					t.Fatal(err)
				}

				if v, err := r.g.Dev.ReadReg("PVRDMA_REG_ERR"); err != nil || v != uint32(unix.EIO) {
					t.Errorf("ERR is %d, error %v; want EIO", v, err)
				}
				if _, err := r.g.Dev.QueryPort(1); err == nil {
					t.Error("a command is executed")
				}
				d.logSays("guest=a", "cause=memory_lost", name, "reload vmw_pvrdma")
				for _, at := range m.there[1:] {
					if err := r.g.Func.UnmapDMA(at, ram.PageSize); err != nil {
						t.Fatal(err)
					}
				}
				r.g.Reboot()
			})
		}
		n.check()
	})
}

// remap maps another frame as page i.
func (m *alias) remap(i int, frame uint64) {
	m.r.t.Helper()
	if err := m.r.g.Func.UnmapDMA(m.there[i], ram.PageSize); err != nil {
		m.r.t.Fatal(err)
	}
	m.mapPage(i, frame)
}

// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// guest is a driver with its device.
type guest struct {
	*memory
	rig      *rig
	space    *guestmem.Space
	bells    *guestmem.SharedPages // nil if every doorbell is a message
	notifier *fakeNotifier
	seen     *recorder
	dev      *Device
	eng      *fakeContext // the engine's side, as of the last activate
	cfg      Config
	driver   uint32 // its version, as of the last activate
}

// newGuest returns a guest whose device is active. Its user contexts' doorbell pages are polled.
func (r *rig) newGuest() *guest {
	r.t.Helper()
	g := r.idleGuest(defaultConfig(), true)
	g.activate()
	return g
}

// trappingGuest returns a guest whose doorbells are all messages.
func (r *rig) trappingGuest() *guest {
	r.t.Helper()
	g := r.idleGuest(defaultConfig(), false)
	g.activate()
	return g
}

// idleGuest returns a guest whose device is not active.
func (r *rig) idleGuest(cfg Config, polled bool) *guest {
	r.t.Helper()
	g := &guest{memory: newMemory(r.t), rig: r, notifier: &fakeNotifier{room: -1}, seen: &recorder{}, cfg: cfg}
	g.space = r.domain.NewSpace(cfg.Name)
	g.space.SetBarrier(func() { r.worker.Do(func() {}) })
	half := len(g.bytes) / 2
	if err := errors.Join(g.space.MapBytes(guestBase, g.bytes[:half], rw),
		g.space.MapBytes(upperHalf, g.bytes[half:], rw)); err != nil {
		r.t.Fatal(err)
	}
	g.makeDevice(polled)
	return g
}

// upperHalf is where a guest's second region begins.
const upperHalf = guestBase + guestPages/2*abi.PageSize

// inUpperHalf has what make allocates in the guest's second region.
func (g *guest) inUpperHalf(make func()) {
	before := g.next
	g.next = upperHalf
	make()
	g.next = before
}

// unplug takes the guest's second region away.
func (g *guest) unplug() {
	g.t.Helper()
	if err := g.space.Unmap(upperHalf, guestPages/2*abi.PageSize); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guest) makeDevice(polled bool) {
	g.t.Helper()
	var err error
	if polled {
		if g.bells, err = guestmem.NewSharedPages("bells", int(g.cfg.MaxUAR)); err != nil {
			g.t.Fatal(err)
		}
	}
	if g.dev, err = g.rig.worker.NewDevice(g.cfg, g.space, g.bells, g.notifier, g.seen); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		g.rig.engine.refuseWith("Context.Close", nil)
		if err := g.dev.Close(); err != nil {
			g.t.Error(err)
		}
		if n := g.space.Stats().Pinned; n != 0 {
			g.t.Errorf("%d pages are pinned after Close", n)
		}
		_ = g.space.Close()
		if g.bells != nil {
			_ = g.bells.Close()
		}
	})
}

func (g *guest) activate() {
	g.t.Helper()
	g.activateFor(abi.VersionMax)
}

// activateFor is what a driver of a version does.
func (g *guest) activateFor(driver uint32) {
	g.t.Helper()
	g.driver = driver
	if err := g.dev.Activate(driver, uarPFN); err != nil {
		g.t.Fatal(err)
	}
	g.eng = g.rig.engine.last()
}

// request is a command's structure.
type request interface{ Encode(b []byte) }

// exec executes a command. The bytes behind the command's own structure are what was on a kernel's stack.
func (g *guest) exec(req request) (*Response, error) {
	var slot Request
	for i := range slot {
		slot[i] = 0xa5
	}
	req.Encode(slot[:])
	resp := &Response{}
	for i := range resp {
		resp[i] = 0x5a
	}
	return resp, g.dev.Exec(&slot, resp)
}

// must executes a command that succeeds, and decodes its response.
func (g *guest) must(req request, resp interface{ Decode(b []byte) error }) {
	g.t.Helper()
	b, err := g.exec(req)
	if err != nil {
		g.t.Fatalf("%T: %v", req, err)
	}
	var h abi.RespHeader
	if err := h.Decode(b[:]); err != nil {
		g.t.Fatal(err)
	}
	var slot Request
	req.Encode(slot[:])
	if cmd, _ := abi.PeekCmd(slot[:]); h.Ack != cmd.Ack() || h.Err != 0 {
		g.t.Fatalf("%v is answered with ack %#x, err %d", cmd, h.Ack, h.Err)
	}
	if resp != nil {
		if err := resp.Decode(b[:]); err != nil {
			g.t.Fatal(err)
		}
	}
}

// refused executes a command that fails with an errno and changes nothing.
func (g *guest) refused(req request, want unix.Errno) {
	g.t.Helper()
	before := g.books()
	_, err := g.exec(req)
	if !errors.Is(err, want) {
		g.t.Errorf("%T: error %v, want %v", req, err, want)
	}
	g.sameBooks(before)
}

func hdr(c abi.Cmd) abi.CmdHeader { return abi.CmdHeader{Cmd: c} }

// createUC opens the device for a process with doorbell page number page.
func (g *guest) createUC(page uint64) uint32 {
	g.t.Helper()
	var r abi.CmdCreateUCResp
	g.must(&abi.CmdCreateUCReq{Hdr: hdr(abi.CmdCreateUC), PFN64: uarPFN + page}, &r)
	return r.CtxHandle
}

func (g *guest) createPD(ctx uint32) uint32 {
	g.t.Helper()
	var r abi.CmdCreatePDResp
	g.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD), CtxHandle: ctx}, &r)
	return r.PDHandle
}

// userMR returns the request for a memory region of some pages.
func (g *guest) userMR(pd uint32, pages int) *abi.CmdCreateMRReq {
	return &abi.CmdCreateMRReq{
		Hdr: hdr(abi.CmdCreateMR), Start: 0x7f00_0000_0000, Length: uint64(pages) * abi.PageSize,
		PDirDMA: g.object(pages).pdir, PDHandle: pd, AccessFlags: abi.AccessLocalWrite, NChunks: uint32(pages),
	}
}

func (g *guest) createMR(pd uint32, pages int) abi.CmdCreateMRResp {
	g.t.Helper()
	var r abi.CmdCreateMRResp
	g.must(g.userMR(pd, pages), &r)
	return r
}

// user opens the device for a process and gives it a protection domain.
func (g *guest) user(page uint64) (ctx, pd uint32) {
	g.t.Helper()
	ctx = g.createUC(page)
	return ctx, g.createPD(ctx)
}

func wantErrno(t *testing.T, err error, want unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// fastMR is the request for a region for fast registration.
func fastMR(pd, pages uint32) *abi.CmdCreateMRReq {
	return &abi.CmdCreateMRReq{Hdr: hdr(abi.CmdCreateMR), PDHandle: pd, Flags: abi.MRFlagFRMR, NChunks: pages}
}

// createFastMR makes a region for fast registration, and returns it with the engine's side of it.
func (g *guest) createFastMR(pd, pages uint32) (abi.CmdCreateMRResp, *memoryRegion, *fakeMR) {
	g.t.Helper()
	var r abi.CmdCreateMRResp
	g.must(fastMR(pd, pages), &r)
	m := g.dev.mrs.get(r.MRHandle)
	return r, m, m.engine.(*fakeMR)
}

// entry returns the first entry of a directory.
func (g *guest) entry(pdir uint64) uint64 {
	return binary.LittleEndian.Uint64(g.read(pdir, abi.PDirEntSize))
}

// regWR is a registration as the engine has it.
func regWR(pdir uint64, pages, length uint32) *hostverbs.SendWR {
	return &hostverbs.SendWR{
		Opcode: hostverbs.OpRegMR,
		Reg:    hostverbs.RegWR{List: pdir, Pages: pages, Length: length, Access: hostverbs.AccessLocalWrite},
	}
}

func TestARegionForFastRegistrationIsTheKernelsAndOfAFewPages(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	kernel := g.createPD(0)
	_, user := g.user(userPage)
	for name, c := range map[string]struct {
		q    *abi.CmdCreateMRReq
		want unix.Errno
	}{
		"a process": {fastMR(user, 4), unix.EPERM}, "no pages": {fastMR(kernel, 0), unix.EINVAL},
		"more than is offered": {fastMR(kernel, 17), unix.EINVAL}, "very many": {fastMR(kernel, 1<<32-1), unix.EINVAL},
		"no such domain": {fastMR(99, 4), unix.EINVAL},
	} {
		t.Log(name)
		g.refused(c.q, c.want)
	}
	r.engine.refuseWith("AllocMR", unix.ENOMEM)
	g.refused(fastMR(kernel, 4), unix.ENOMEM)
	r.engine.refuseWith("AllocMR", nil)

	resp, m, e := g.createFastMR(kernel, 16)
	if e.fast != 16 || resp.LKey != e.lkey || resp.RKey != e.rkey {
		t.Errorf("%d pages, keys %#x and %#x, the engine's %d, %#x and %#x", 16, resp.LKey, resp.RKey, e.fast, e.lkey, e.rkey)
	}
	if g.dev.pinned != 16 || !m.pages.Revoked() {
		t.Errorf("%d pages count as registered, want the 16 that may be; it has some: %v", g.dev.pinned, !m.pages.Revoked())
	}
	g.must(&abi.CmdDestroyMRReq{Hdr: hdr(abi.CmdDestroyMR), MRHandle: resp.MRHandle}, nil)
	if st := g.space.Stats(); g.dev.pinned != 0 || st.Lists != 0 {
		t.Errorf("destroyed: %d pages, lists of %d bytes", g.dev.pinned, st.Lists)
	}
}

func TestFastRegistrationIsRefusedWhereItIsNotOffered(t *testing.T) {
	r := newRig(t)
	r.engine.attr.FastRegistration = false
	g := r.newGuest()
	g.refused(fastMR(g.createPD(0), 1), unix.EINVAL)
}

func TestARegistrationReadsTheListOnceAndGivesItsPages(t *testing.T) {
	g := newRig(t).newGuest()
	_, _, e := g.createFastMR(g.createPD(0), 16)
	for range 2 {
		o := g.object(3)
		mem, err := e.src.PullPages(regWR(o.pdir, 3, 3*abi.PageSize))
		if err != nil {
			t.Fatal(err)
		}
		// The guest writes the same directory for its next registration.
		g.write64(g.entry(o.pdir), 0xdead000)
		if err := mem.Write(2*abi.PageSize+5, []byte{42}); err != nil {
			t.Fatal(err)
		}
		if err := mem.Write(7, []byte{43}); err != nil {
			t.Fatal(err)
		}
		if b := g.read(o.list[2]+5, 1); b[0] != 42 {
			t.Error("the third page is not where the list says")
		}
		if b := g.read(o.list[0]+7, 1); b[0] != 43 {
			t.Error("the first page is not where the list said when it was read")
		}
		e.src.DropPages()
		if err := mem.Write(0, []byte{1}); !errors.Is(err, guestmem.ErrRevoked) {
			t.Errorf("the region is free, and a write gives %v", err)
		}
	}
}

func TestARegistrationThatLiesIsRefusedAndCounted(t *testing.T) {
	g := newRig(t).newGuest()
	_, _, e := g.createFastMR(g.createPD(0), 16)
	good := g.object(3)
	spoiled := func(entry uint64) uint64 {
		o := g.object(3)
		g.write64(g.entry(o.pdir)+8, entry)
		return o.pdir
	}
	for name, pdir := range map[string]uint64{
		"no directory": 0, "off its page": good.pdir + 8, "in a hole": 0x1000, "a page of 0": spoiled(0),
		"a page off its page": spoiled(good.list[0] + 1), "a page in a hole": spoiled(0x1000), "the end of time": spoiled(1<<64 - 4096),
	} {
		before := g.seen.violations()[BadWQE]
		if _, err := e.src.PullPages(regWR(pdir, 3, 1)); err == nil {
			t.Errorf("%s: taken", name)
		}
		if n := g.seen.violations()[BadWQE] - before; n != 1 {
			t.Errorf("%s: %d broken requests are counted", name, n)
		}
	}
	if g.notifier.failures() != nil {
		t.Error("the device has failed")
	}
	for name, q := range map[string]*abi.FastRegWR{
		"no pages": {PageShift: 12}, "more than offered": {PageShift: 12, PageListLen: 17}, "very many": {PageShift: 12, PageListLen: 1 << 31},
		"small pages": {PageShift: 11, PageListLen: 1}, "huge pages": {PageShift: 21, PageListLen: 1},
	} {
		kernel, _ := g.kernelQP(8)
		before := g.seen.violations()[BadWQE]
		got := kernel.send(sendWQE(abi.SendWQEHdr{Opcode: abi.WRFastRegMR}, q), 0)
		if got.Status != hostverbs.WCLocQPOpErr || g.seen.violations()[BadWQE] != before+1 {
			t.Errorf("%s: status %v", name, got.Status)
		}
	}
}

func TestAFastRegistrationIsTranslated(t *testing.T) {
	g := newRig(t).newGuest()
	q, _ := g.kernelQP(8)
	got := q.send(sendWQE(abi.SendWQEHdr{WRID: 3, Opcode: abi.WRFastRegMR, SendFlags: abi.SendSignaled}, &abi.FastRegWR{
		IOVAStart: 0xffff888000001028, PLPDirDMA: 0x123000, PageShift: 12, PageListLen: 5, Length: 0x4001,
		AccessFlags: abi.AccessLocalWrite | abi.AccessRemoteRead | 1<<20, RKey: 0xabcdef07,
	}), 0)
	want := hostverbs.SendWR{
		WRID: 3, Opcode: hostverbs.OpRegMR, Flags: hostverbs.SendSignaled, RemoteAddr: 0xffff888000001028, RKey: 0xabcdef07,
		Reg: hostverbs.RegWR{
			List: 0x123000, Pages: 5, Length: 0x4001, Access: hostverbs.AccessLocalWrite | hostverbs.AccessRemoteRead,
		},
	}
	if got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	for op, want := range map[abi.WROpcode]hostverbs.WROpcode{
		abi.WRLocalInv: hostverbs.OpLocalInv, abi.WRSendWithInv: hostverbs.OpSendWithInv,
	} {
		if got := q.send(sendWQE(abi.SendWQEHdr{Opcode: op, Ex: 0xabcdef07}, nil), 0); got.Opcode != want || got.Imm != 0xabcdef07 {
			t.Errorf("%v: %v of key %#x", op, got.Opcode, got.Imm)
		}
	}
}

func TestACompletionSaysWhichKeyWasInvalidated(t *testing.T) {
	g := newRig(t).newGuest()
	q, c := g.kernelQP(8)
	if err := q.engine.h.CompleteRecv(&hostverbs.WC{
		WRID: 5, Opcode: hostverbs.WCOpRecv, Flags: hostverbs.WCWithInvalidate, Imm: 0xabcdef07,
	}); err != nil {
		t.Fatal(err)
	}
	g.rig.worker.show()
	if e := c.take(); e.WCFlags != abi.WCFlagWithInvalidate || e.ImmData != 0xabcdef07 {
		t.Errorf("flags %v, key %#x", e.WCFlags, e.ImmData)
	}
}

func TestLongRegistrationsTakeTheirShareOfAPass(t *testing.T) {
	if one, many := cost(0, 1/fastRegPiece, shareBytes), cost(0, maxFastRegPages/fastRegPiece, shareBytes); one != 1 || many < 4 {
		t.Errorf("a registration of a page takes %d shares, one of %d pages %d", one, maxFastRegPages, many)
	}
}

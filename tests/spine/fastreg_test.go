// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// fastRegion is a region for fast registration of a guest's kernel, which gives it other pages again and again as a storage
// protocol does for each request.
type fastRegion struct {
	t   *testing.T
	e   *testguest.Endpoint
	mr  driver.MR
	key uint32
}

const (
	fastPages = 4
	fastIOVA  = 0x4000_0000
)

func newFastRegion(t *testing.T, e *testguest.Endpoint) *fastRegion {
	t.Helper()
	g := e.P.G
	mr, err := g.Dev.CreateMR(driver.MRParams{PD: e.PD.Handle, Flags: g.Const("PVRDMA_MR_FLAG_FRMR"), Chunks: fastPages})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Dev.DestroyMR(mr.Handle); err != nil {
			t.Error(err)
		}
	})
	return &fastRegion{t: t, e: e, mr: mr, key: mr.RKey}
}

// register gives the region pages, beginning at an offset of the first, under the next of its keys.
func (f *fastRegion) register(pages []uint64, offset int) testguest.Address {
	f.t.Helper()
	g := f.e.P.G
	dir, err := driver.NewPageDir(g.L, g.RAM, pages)
	if err != nil {
		f.t.Fatal(err)
	}
	defer dir.Free() // it is read once
	f.key = f.key&^0xff | (f.key+1)&0xff
	to := f.e.Address()
	to.Addr, to.RKey, to.Len = fastIOVA+uint64(offset), f.key, len(pages)*ram.PageSize-offset
	wr := f.e.Op("FAST_REG_MR", testguest.Address{}, 0, 0)
	wr.FastReg = &verbs.FastReg{
		IOVA: to.Addr, PDir: dir.Addr(), Pages: uint32(len(pages)), Bytes: uint32(to.Len), Access: g.RemoteAccess(), Key: f.key,
	}
	f.e.Sent(f.e.Post(wr), "SUCCESS")
	return to
}

// bytes are a guest's pages as its kernel sees them.
func (f *fastRegion) bytes(pages []uint64) (all [][]byte) {
	f.t.Helper()
	for _, p := range pages {
		b, err := f.e.P.G.RAM.Bytes(p, ram.PageSize)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// TestAFastRegistrationServesThePagesOfItsTimeUnderItsKeyAlone has a kernel give one region other pages again and again, its
// peer write to them and read them, and either of them end the registration.
func TestAFastRegistrationServesThePagesOfItsTimeUnderItsKeyAlone(t *testing.T) {
	const rounds = 20
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.guest("a").InKernel().Endpoint(testguest.Shape{}), d.guest("b").InKernel().Endpoint(testguest.Shape{})
		testguest.Connect(a, b)
		f := newFastRegion(t, b)
		all, err := b.P.G.RAM.Pages(3 * fastPages)
		if err != nil {
			t.Fatal(err)
		}
		var to testguest.Address
		for round := range rounds {
			pages, offset := all[round%3*fastPages:][:1+round%fastPages], round*40
			to = f.register(pages, offset)
			p := testguest.Pattern{Seed: 11, Iteration: uint64(round)}
			p.Fill(a.MR.Mem[:to.Len])
			a.Sent(a.Write(to, 0, to.Len), "SUCCESS")
			var got []byte
			for _, b := range f.bytes(pages) {
				got = append(got, b...)
			}
			if err := p.Check(got[offset:]); err != nil {
				t.Fatalf("round %d: what was written: %v", round, err)
			}
			clear(a.MR.Mem[:to.Len])
			a.Sent(a.Read(to, 0, to.Len), "SUCCESS")
			if err := p.Check(a.MR.Mem[:to.Len]); err != nil {
				t.Fatalf("round %d: what was read: %v", round, err)
			}
			f.end(a, round%2 == 0)
		}
		a.Sent(a.Write(to, 0, 8), "REM_ACCESS_ERR")
	})
}

// end invalidates the registration, as its kernel does or as the peer does with a message.
func (f *fastRegion) end(peer *testguest.Endpoint, itself bool) {
	f.t.Helper()
	if itself {
		wr := f.e.Op("LOCAL_INV", testguest.Address{}, 0, 0)
		wr.InvalidateKey = f.key
		f.e.Sent(f.e.Post(wr), "SUCCESS")
		return
	}
	recv := f.e.Recv(0, 64)
	wr := peer.Op("SEND_WITH_INV", testguest.Address{}, 0, 64)
	wr.InvalidateKey = f.key
	peer.Sent(peer.Post(wr), "SUCCESS")
	wc := f.e.Received(recv, "SUCCESS")
	key := bits.ReverseBytes32(wc.Imm) // it has the place of immediate data, which alone is in network order
	if wc.Flags&f.e.P.G.Const("PVRDMA_WC_WITH_INVALIDATE") == 0 || key != f.key {
		f.t.Errorf("the message's completion has flags %#x and names key %#x, want %#x", wc.Flags, key, f.key)
	}
}

// TestAKeyOfAnEarlierRegistrationNamesNothing, while the region has pages under the next one.
func TestAKeyOfAnEarlierRegistrationNamesNothing(t *testing.T) {
	d := startDaemon(t, "poll")
	ga, gb := d.guest("a"), d.guest("b")
	pages, err := gb.RAM.Pages(2)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"RDMA_WRITE", "RDMA_READ"} {
		t.Run(op, func(t *testing.T) {
			a, b := ga.InKernel().Endpoint(testguest.Shape{}), gb.InKernel().Endpoint(testguest.Shape{})
			testguest.Connect(a, b)
			f := newFastRegion(t, b)
			before := f.register(pages[:1], 0)
			f.end(a, true)
			now := f.register(pages[1:], 0)
			a.Sent(a.Post(a.Op(op, now, 0, 8)), "SUCCESS")
			was := fmt.Sprint(f.bytes(pages))
			a.Sent(a.Post(a.Op(op, before, 0, 8)), "REM_ACCESS_ERR")
			if fmt.Sprint(f.bytes(pages)) != was {
				t.Error("the guest's memory has changed")
			}
		})
	}
}

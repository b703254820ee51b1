// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// fastRegCases are about regions that get their memory from work requests.
func fastRegCases() []Case {
	return []Case{
		{"a region for fast registration names memory from its registration to its invalidation", fastRegLife},
		{"a registration gives the region its address, its bounds and its rights", fastRegBounds},
		{"a registration gives the region its key", fastRegKeys},
		{"a registration that makes no sense fails and changes nothing", badFastReg},
		{"a region that has memory cannot be registered", fastRegTwice},
		{"the key 0 names no memory, nor a region that has none", keyZero},
		{"what is not the domain's own to invalidate stays", badInvalidate},
		{"a message can free the receiver's region", remoteInvalidate},
		{"a message frees a region without rights for its sender, too", remoteInvalidateWithoutRights},
		{"a message that is to free what it may not fails on both sides", badRemoteInvalidate},
		{"a registration waits for messages that have the region's memory of before", fastRegWaits},
		{"registrations and invalidations keep their place among the requests", fastRegOrder},
		{"a region for fast registration is an object like all others", fastRegObject},
		{"registering and invalidating allocates nothing", fastRegAllocation},
	}
}

// fastPages is how many pages the regions of the tests have room for.
const fastPages = 4

// source is the device's side of a region for fast registration. It belongs to the owner's thread.
type source struct {
	g *guest
	// lists are the page lists by what a request calls them.
	lists        map[uint64][]uint64
	mem          *guestmem.Pages
	pulls, drops int
	err          error
}

func (s *source) PullPages(wr *hostverbs.SendWR) (guestmem.Memory, error) {
	s.pulls++
	if !s.g.site.owner.current() {
		s.err = errors.New("called on another thread than the owner's")
	}
	if s.err != nil {
		return nil, s.err
	}
	if err := s.mem.Fill(s.lists[wr.Reg.List][:wr.Reg.Pages], guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		return nil, err
	}
	return s.mem, nil
}

func (s *source) DropPages() {
	s.drops++
	s.mem.Empty()
}

// fastRegion is a region for fast registration with its source.
type fastRegion struct {
	*region
	src *source
}

// fast allocates a region for fast registration. Its pages are those of list 1, and list 2 has others.
func (g *guest) fast(pd hostverbs.PD) fastRegion {
	g.w.t.Helper()
	src := &source{g: g, lists: map[uint64][]uint64{1: g.takePages(fastPages, true), 2: g.takePages(fastPages, true)}}
	var err error
	if src.mem, err = g.space.NewList(fastPages); err != nil {
		g.w.t.Fatalf("page list: %v", err)
	}
	r := fastRegion{&region{g: g, pages: src.lists[1]}, src}
	if r.mr, err = g.ctx.AllocMR(pd, fastPages, src); err != nil {
		g.w.t.Fatalf("allocate a region: %v", err)
	}
	return r
}

// reg makes a signalled registration of list 1 as n bytes from start on, with a low byte of the key.
func (r fastRegion) reg(id, start uint64, n uint32, low uint8, access hostverbs.AccessFlags) hostverbs.SendWR {
	q := wr(id, hostverbs.OpRegMR)
	q.RemoteAddr, q.RKey = start, r.key(low)
	q.Reg = hostverbs.RegWR{List: 1, Pages: uint32((start%page + uint64(n) + page - 1) / page), Length: n, Access: access}
	r.start, r.n, r.first = start, uint64(n), start%page
	return q
}

// key is the region's key with a low byte.
func (r fastRegion) key(low uint8) uint32 { return r.mr.RKey()&^0xff | uint32(low) }

// inv makes a signalled invalidation.
func (r fastRegion) inv(id uint64, low uint8) hostverbs.SendWR {
	q := wr(id, hostverbs.OpLocalInv)
	q.Imm = r.key(low)
	return q
}

// use makes a signalled WRITE or READ of n bytes at off of the region.
func (r fastRegion) use(id uint64, op hostverbs.WROpcode, low uint8, off uint64, near hostverbs.SGE) hostverbs.SendWR {
	q := wr(id, op, near)
	q.RemoteAddr, q.RKey = r.start+off, r.key(low)
	return q
}

// fastStart is where the tests register: 40 bytes into a page.
const fastStart = 0xffff_8880_0000_1028

// hasFastReg says whether the engine says that it has fast registration. One that has none refuses all of it.
func hasFastReg(t testing.TB, env Env) bool {
	a := env.Provider.QueryDevice()
	if a.FastRegistration && a.LocalInvalidate && a.RemoteInvalidate {
		if a.MaxFastRegPageLen < fastPages {
			t.Errorf("the engine registers %d pages at most", a.MaxFastRegPageLen)
		}
		return true
	}
	w := newWorld(t, env)
	g := w.guest()
	_, err := g.ctx.AllocMR(g.pd, 1, &source{g: g})
	w.want("allocate a region", err, unix.EOPNOTSUPP)
	for _, op := range []hostverbs.WROpcode{hostverbs.OpRegMR, hostverbs.OpLocalInv, hostverbs.OpSendWithInv} {
		e, _ := w.pair(g, g, nil)
		e.send(wr(1, op))
		w.settle()
		e.sends(op.String(), failed(1, hostverbs.WCLocQPOpErr))
	}
	return false
}

// tries sends one request of ea's over a new connection to eb's guest, and expects it to end like this.
func (w *world) tries(a, b *guest, what string, r hostverbs.SendWR, want hostverbs.WCStatus) {
	w.t.Helper()
	ea, eb := w.pair(a, b, nil)
	ea.send(r)
	w.settle()
	if n := len(ea.dev.sent); n != 1 || ea.dev.sent[0].Status != want {
		w.t.Errorf("%s: completions %+v, want one with %s", what, ea.dev.sent, want)
	}
	ea.destroy()
	eb.destroy()
}

func fastRegLife(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, r := a.buffer(3*page), b.fast(b.pd)
	data := near.fill(1, 1, 3*page)
	_, eb := w.pair(a, b, nil)
	write := func(what string, want hostverbs.WCStatus) {
		t.Helper()
		w.tries(a, b, what, r.use(1, hostverbs.OpRDMAWrite, 7, 100, near.sge(0, 2*page)), want)
		w.verify(what)
	}
	reg := r.reg(10, fastStart, 3*page, 7, everything)
	write("free", hostverbs.WCRemAccessErr)
	for _, list := range []uint64{1, 2, 1} {
		reg.Reg.List = list
		r.pages = r.src.lists[list]
		eb.send(reg)
		w.settle()
		eb.sends("registered", done(10, hostverbs.WCOpRegMR))
		r.expect(100, data[:2*page])
		write("registered", hostverbs.WCSuccess)
		eb.send(r.inv(11, 7))
		w.settle()
		eb.sends("invalidated", done(11, hostverbs.WCOpLocalInv))
		write("invalidated", hostverbs.WCRemAccessErr)
	}
	eb.send(r.inv(11, 7))
	w.settle()
	eb.sends("invalidated twice", done(11, hostverbs.WCOpLocalInv))
	if r.src.pulls != 3 || r.src.drops != 3 {
		t.Errorf("the device was asked %d times for pages and %d times to drop them, want 3 and 3", r.src.pulls, r.src.drops)
	}
}

func fastRegBounds(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near := a.buffer(fastPages * page)
	near.fill(1, 1, fastPages*page)
	for _, c := range []struct {
		start uint64
		n     uint32
	}{{fastStart, 100}, {fastStart, 3*page - 40}, {0, fastPages * page}, {1<<64 - 2*page + 8, page}, {5, 1}} {
		b.used = 0
		r := b.fast(b.pd)
		_, eb := w.pair(a, b, nil)
		eb.send(r.reg(10, c.start, c.n, 7, everything))
		w.settle()
		eb.sends("registered", done(10, hostverbs.WCOpRegMR))
		for what, at := range map[string]struct{ off, n uint64 }{
			"all of it": {0, r.n}, "its last byte": {r.n - 1, 1}, "nothing behind it": {r.n, 0},
		} {
			what = fmt.Sprintf("%#x+%#x: %s", c.start, c.n, what)
			r.expect(at.off, near.g.want[near.at(0):][:min(at.n, page-near.first)])
			for i := page - near.first; i < at.n; i += page {
				r.expect(i, near.g.want[near.at(i):][:min(at.n-i, page)])
			}
			w.tries(a, b, what, r.use(1, hostverbs.OpRDMAWrite, 7, at.off, near.sge(0, at.n)), hostverbs.WCSuccess)
			w.verify(what)
		}
		for what, at := range map[string]struct{ off, n uint64 }{
			"one byte before it": {^uint64(0), 2}, "one byte behind it": {r.n - 1, 2}, "behind it": {r.n, 1},
			"as an offset": {-c.start, 1},
		} {
			if c.start == 0 && what == "as an offset" {
				continue
			}
			what = fmt.Sprintf("%#x+%#x: %s", c.start, c.n, what)
			w.tries(a, b, what, r.use(1, hostverbs.OpRDMAWrite, 7, at.off, near.sge(0, at.n)), hostverbs.WCRemAccessErr)
			w.verify(what)
		}
	}
	for _, op := range []hostverbs.WROpcode{hostverbs.OpRDMAWrite, hostverbs.OpRDMARead, hostverbs.OpAtomicFetchAndAdd} {
		for access, want := range map[hostverbs.AccessFlags]hostverbs.WCStatus{
			everything &^ rightTo(op): hostverbs.WCRemAccessErr, hostverbs.AccessLocalWrite | rightTo(op): hostverbs.WCSuccess,
		} {
			b.used = 0
			r := b.fast(b.pd)
			_, eb := w.pair(a, b, nil)
			eb.send(r.reg(10, 0x5000, page, 7, access))
			w.settle()
			w.tries(a, b, fmt.Sprintf("%s with %s", op, access), r.use(1, op, 7, 0, near.sge(5, wordBytes)), want)
			w.believe()
		}
	}
	localRights(w, a, b)
}

// localRights uses a registration by its local key.
func localRights(w *world, a, b *guest) {
	w.t.Helper()
	for access, want := range map[hostverbs.AccessFlags]hostverbs.WCStatus{
		0: hostverbs.WCLocProtErr, hostverbs.AccessLocalWrite: hostverbs.WCSuccess,
	} {
		r := b.fast(b.pd)
		r.src.lists[1] = r.src.lists[1][:1]
		_, eb := w.pair(a, b, nil)
		read := wr(11, hostverbs.OpRDMARead, hostverbs.SGE{Addr: 0x5010, Length: 8, LKey: r.key(7)})
		far := a.buffer(64)
		read.RemoteAddr, read.RKey = far.start, far.mr.RKey()
		eb.send(r.reg(10, 0x5000, page, 7, access), read)
		w.settle()
		if n := len(eb.dev.sent); n != 2 || eb.dev.sent[1].Status != want {
			w.t.Errorf("READ into a region with %s: %+v, want %s", access, eb.dev.sent, want)
		}
	}
	w.believe()
}

func fastRegKeys(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, r := a.buffer(64), b.fast(b.pd)
	near.fill(1, 1, 64)
	_, eb := w.pair(a, b, nil)
	if r.mr.LKey() != r.mr.RKey() {
		t.Errorf("local key %#x and remote key %#x: the guest writes one low byte to both", r.mr.LKey(), r.mr.RKey())
	}
	before := uint8(r.mr.RKey())
	for _, low := range []uint8{0, 1, 255, 128, before} {
		eb.send(r.reg(10, fastStart, page, low, everything))
		w.settle()
		eb.sends("registered", done(10, hostverbs.WCOpRegMR))
		r.expect(0, near.g.want[near.at(0):][:64])
		for _, other := range []uint8{low, low + 1, low - 1, low ^ 0x80, before} {
			want := hostverbs.WCRemAccessErr
			if other == low {
				want = hostverbs.WCSuccess
			}
			w.tries(a, b, fmt.Sprintf("key byte %d, registered with %d", other, low),
				r.use(1, hostverbs.OpRDMAWrite, other, 0, near.sge(0, 64)), want)
		}
		w.verify("key bytes")
		eb.send(r.inv(11, low))
		w.settle()
		eb.sends("invalidated", done(11, hostverbs.WCOpLocalInv))
		before = low
	}
	// Regions that come later do not get a key that this one has had.
	had := r.mr.RKey() &^ 0xff
	if err := r.mr.Dereg(); err != nil {
		t.Fatalf("deregister: %v", err)
	}
	for range 200 {
		if m := b.buffer(1); m.mr.RKey()&^0xff == had {
			t.Fatalf("an ordinary region has the key %#x, which the guest may have given the other", m.mr.RKey())
		} else if err := m.mr.Dereg(); err != nil {
			t.Fatal(err)
		}
		b.used--
	}
}

func badFastReg(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ordinary, foreign, dead := b.buffer(page), b.fast(b.otherPD()), b.fast(b.pd)
	if err := dead.mr.Dereg(); err != nil {
		t.Fatalf("deregister: %v", err)
	}
	near := a.buffer(64)
	for what, spoil := range map[string]func(q *hostverbs.SendWR, r fastRegion){
		"no pages":                     func(q *hostverbs.SendWR, _ fastRegion) { q.Reg.Pages = 0 },
		"more pages than it has room":  func(q *hostverbs.SendWR, _ fastRegion) { q.Reg.Pages = fastPages + 1 },
		"very many pages":              func(q *hostverbs.SendWR, _ fastRegion) { q.Reg.Pages = ^uint32(0) },
		"no bytes":                     func(q *hostverbs.SendWR, _ fastRegion) { q.Reg.Length = 0 },
		"more bytes than pages":        func(q *hostverbs.SendWR, _ fastRegion) { q.Reg.Length = page + 1 },
		"as many as pages, but inside": func(q *hostverbs.SendWR, _ fastRegion) { q.RemoteAddr++; q.Reg.Length = page },
		"4 GiB":                        func(q *hostverbs.SendWR, _ fastRegion) { q.Reg.Length = ^uint32(0) },
		"around the end": func(q *hostverbs.SendWR, _ fastRegion) {
			q.RemoteAddr = 1<<64 - page
			q.Reg.Pages, q.Reg.Length = 2, page+1
		},
		"remote write without local":  func(q *hostverbs.SendWR, _ fastRegion) { q.Reg.Access = hostverbs.AccessRemoteWrite },
		"remote atomic without local": func(q *hostverbs.SendWR, _ fastRegion) { q.Reg.Access = hostverbs.AccessRemoteAtomic },
		"key 0":                       func(q *hostverbs.SendWR, _ fastRegion) { q.RKey = 0 },
		"a key of nothing":            func(q *hostverbs.SendWR, _ fastRegion) { q.RKey = 0xfffffff0 },
		"an ordinary region":          func(q *hostverbs.SendWR, _ fastRegion) { q.RKey = ordinary.mr.RKey() },
		"another domain's region":     func(q *hostverbs.SendWR, _ fastRegion) { q.RKey = foreign.key(7) },
		"a region that is gone":       func(q *hostverbs.SendWR, _ fastRegion) { q.RKey = dead.key(7) },
		"a neighbour's generation":    func(q *hostverbs.SendWR, _ fastRegion) { q.RKey ^= 0x100 },
		"a device that has no list":   func(_ *hostverbs.SendWR, r fastRegion) { r.src.err = unix.EFAULT },
		"a page that is none":         func(_ *hostverbs.SendWR, r fastRegion) { r.src.lists[1][0] = ramBase + ramBytes },
		"what the device found":       func(q *hostverbs.SendWR, _ fastRegion) { q.Status = hostverbs.WCLocQPOpErr },
	} {
		r := b.fast(b.pd)
		_, eb := w.pair(a, b, nil)
		q := r.reg(10, 0x5000, page, 7, everything)
		spoil(&q, r)
		want := hostverbs.WCMWBindErr
		if q.Status != hostverbs.WCSuccess {
			want = q.Status
		}
		eb.send(q, r.inv(11, 7))
		w.settle()
		eb.sends(what, failed(10, want), failed(11, hostverbs.WCWRFlushErr))
		eb.in(what, hostverbs.StateErr)
		for _, key := range []uint32{r.key(7), q.RKey} {
			use := wr(1, hostverbs.OpRDMAWrite, near.sge(0, 8))
			use.RemoteAddr, use.RKey = q.RemoteAddr, key
			if key != ordinary.mr.RKey() {
				w.tries(a, b, what, use, hostverbs.WCRemAccessErr)
			}
		}
		w.verify(what)
		b.used -= 2 * fastPages
	}
}

func fastRegTwice(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, r := a.buffer(64), b.fast(b.pd)
	data := near.fill(1, 1, 64)
	_, eb := w.pair(a, b, nil)
	again := r.reg(11, 0x9000, page, 8, everything)
	again.Reg.List = 2
	eb.send(r.reg(10, fastStart, page, 7, everything), again)
	w.settle()
	eb.sends("registered twice", done(10, hostverbs.WCOpRegMR), failed(11, hostverbs.WCMWBindErr))
	r.expect(0, data)
	w.tries(a, b, "the first registration", r.use(1, hostverbs.OpRDMAWrite, 7, 0, near.sge(0, 64)), hostverbs.WCSuccess)
	w.tries(a, b, "the second", r.use(1, hostverbs.OpRDMAWrite, 8, 0, near.sge(0, 64)), hostverbs.WCRemAccessErr)
	w.verify("registered twice")
}

// keyZero sends from a region that has no memory any more by the key that engines may give to such.
func keyZero(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	r, far := b.fast(b.pd), a.buffer(64) // the guest's first region
	ea, eb := w.pair(a, b, nil)
	ea.recv(rwr(5, far.sge(0, 64)))
	eb.send(r.reg(10, fastStart, page, 7, everything), r.inv(11, 7))
	w.settle()
	eb.sends("registered and invalidated", done(10, hostverbs.WCOpRegMR), done(11, hostverbs.WCOpLocalInv))
	eb.send(wr(1, hostverbs.OpSend, hostverbs.SGE{Addr: fastStart, Length: 64}))
	w.settle()
	eb.sends("key 0", failed(1, hostverbs.WCLocProtErr))
	if len(ea.dev.rq) != 1 {
		t.Error("a receive was taken for a message that had no bytes to send")
	}
	w.verify("key 0")
}

// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// maxFastRegPages bounds a region for fast registration: to fill one takes a few microseconds of the owner's thread.
const maxFastRegPages = 128

// fastRegPage is what a page of a fast registration counts as in a visit, in bytes.
const fastRegPage = 256

// fastMR is what a region for fast registration has besides.
type fastMR struct {
	src  hostverbs.PageSource
	most uint32 // pages
	// last is the key of the last registration: the one that may be invalidated. Owner's thread.
	last uint32
	// away counts the messages with the memory that are with other owners. dropped: the region was invalidated meanwhile, and
	// its pages are let go when they are back. waiter is a queue pair that waits for that with a registration. Owner's thread.
	away    int
	dropped bool
	waiter  *qp
}

// AllocMR allocates a region for fast registration.
func (c *context) AllocMR(p hostverbs.PD, pages int, src hostverbs.PageSource) (hostverbs.MR, error) {
	d, err := c.ownPD(p)
	if err != nil {
		return nil, c.errf("allocate a memory region: %w", err)
	}
	if src == nil || pages < 1 || pages > maxFastRegPages {
		return nil, c.errf("allocate a memory region of %d pages (1 to %d allowed): %w", pages, maxFastRegPages, unix.EINVAL)
	}
	m := &mr{ctx: c, pd: d, fast: &fastMR{src: src, most: uint32(pages)}}
	if err := c.addMR(m); err != nil {
		return nil, c.errf("allocate a memory region: %w", err)
	}
	return m, nil
}

// fastRegion returns the domain's region for fast registration that a key means, whatever its low byte, or nil. Owner's
// thread.
func (t *keyTable) fastRegion(key uint32, d *pd) *mr {
	i := key >> keyGenBits
	if int(i) >= len(t.slots) {
		return nil
	}
	m := t.slots[i]
	if m == nil || m.fast == nil || m.pd != d || (m.id^key)&^keyByteMask != 0 {
		return nil
	}
	return m
}

// register gives a free region the memory of a request. It waits if another owner may be at work on the pages of before.
func (q *qp) register(wr *hostverbs.SendWR) (ok, wait bool) {
	m := q.ctx.keys.fastRegion(wr.RKey, q.pd)
	if m == nil || m.key != 0 || !m.fast.takes(wr) {
		return false, false
	}
	if m.fast.dropped {
		if other := m.fast.waiter; other != q && other.waitsFor(m) {
			return false, false // one of two would fail anyway
		}
		m.fast.waiter = q
		return false, true
	}
	mem, err := m.fast.src.PullPages(wr)
	if err != nil {
		return false, false
	}
	m.mem, m.access = mem, wr.Reg.Access
	m.start, m.length, m.offset = wr.RemoteAddr, uint64(wr.Reg.Length), wr.RemoteAddr%guestmem.PageSize
	m.key, m.fast.last = wr.RKey, wr.RKey
	return true, false
}

// takes says whether a registration makes sense and fits.
func (f *fastMR) takes(wr *hostverbs.SendWR) bool {
	n := uint64(wr.Reg.Length)
	return wr.Reg.Pages >= 1 && wr.Reg.Pages <= f.most && n >= 1 && coherent(wr.Reg.Access) &&
		wr.RemoteAddr%guestmem.PageSize+n <= uint64(wr.Reg.Pages)*guestmem.PageSize && wr.RemoteAddr <= math.MaxUint64-n
}

// invalidate takes the memory away from the region that has a key, or had it last: twice is as good as once. It is false if
// the key is none of the domain's that can be invalidated.
func (t *keyTable) invalidate(key uint32, d *pd) bool {
	m := t.fastRegion(key, d)
	if m == nil || m.fast.last != key {
		return false
	}
	if m.key != 0 {
		m.key, m.mem, m.access = 0, nil, 0
		m.start, m.length, m.offset = 0, 0, 0
		if m.fast.away > 0 { // or no message that is away has any of it
			m.ctx.withdrawn.Add(1)
		}
		m.fast.dropped = true
		m.fast.drop()
	}
	return true
}

// drop lets go of the pages of a region that was invalidated, once no other owner may be at work on them. Owner's thread.
func (f *fastMR) drop() {
	if f.dropped && f.away == 0 {
		f.dropped = false
		f.src.DropPages()
		f.goOn()
	}
}

// goOn lets the registration go on that has waited, if there is one yet. Owner's thread.
func (f *fastMR) goOn() {
	q := f.waiter
	f.waiter = nil
	if q != nil && q.sq.busy && isLocal(q.sq.wr.Opcode) {
		q.want(todoRun)
	}
}

// waitsFor says whether a registration of the queue pair waits for the pages of a region. Owner's thread.
func (q *qp) waitsFor(m *mr) bool {
	return q != nil && q.sq.busy && isLocal(q.sq.wr.Opcode) && q.ctx.keys.fastRegion(q.sq.wr.RKey, q.pd) == m
}

// lend notes that the regions for fast registration which a request names are in use elsewhere.
func (x *parcel) lend(wr *hostverbs.SendWR) {
	x.lent = 0
	for i := range wr.SGE[:wr.NumSGE] {
		if m := x.q.ctx.keys.find(wr.SGE[i].LKey); m != nil && m.fast != nil {
			m.fast.away++
			x.fast[x.lent] = m.fast
			x.lent++
		}
	}
}

// recover notes that they are not any more.
func (x *parcel) recover() {
	for i, f := range x.fast[:x.lent] {
		f.away--
		f.drop()
		x.fast[i] = nil
	}
	x.lent = 0
}

// isLocal says whether an operation is about the requester's own regions alone.
func isLocal(o hostverbs.WROpcode) bool { return o == hostverbs.OpRegMR || o == hostverbs.OpLocalInv }

// local carries out such an operation, or keeps it while it has to wait. All requests before it are done, and none after it has
// begun.
func (q *qp) local(wr *hostverbs.SendWR, b *budget) {
	status, wait := q.doLocal(wr, b)
	if wait {
		q.sq.wr, q.sq.busy = *wr, true
		return
	}
	q.finish(wr, status)
}

// doLocal is local but for the completion.
func (q *qp) doLocal(wr *hostverbs.SendWR, b *budget) (status hostverbs.WCStatus, wait bool) {
	switch {
	case wr.Status != hostverbs.WCSuccess:
		return wr.Status, false
	case wr.Opcode == hostverbs.OpLocalInv:
		if q.free(wr.Imm) {
			return hostverbs.WCSuccess, false
		}
	default:
		ok, wait := q.register(wr)
		if ok {
			b.moved(uint64(wr.Reg.Pages) * fastRegPage)
			q.pl.count.add(cntRegistrations, 1)
			return hostverbs.WCSuccess, false
		}
		if wait {
			return 0, true
		}
	}
	return hostverbs.WCMWBindErr, false
}

// free invalidates a key, and says whether the queue pair might.
func (q *qp) free(key uint32) bool {
	ok := q.ctx.keys.invalidate(key, q.pd)
	if ok {
		q.pl.count.add(cntInvalidations, 1)
	}
	return ok
}

// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

var (
	stormSeedFlag   = flag.Uint64("storm.seed", 1, "the first seed of storms")
	stormRoundsFlag = flag.Int("storm.rounds", 2, "how many storms")
	stormActsFlag   = flag.Int("storm.acts", 150, "how many control calls each guest makes in a storm")
)

func stormSeed() uint64 { return *stormSeedFlag }
func stormRounds() int  { return *stormRoundsFlag }
func stormActs() int    { return *stormActsFlag }

// stormSource is a region for fast registration, and the device's side of it.
type stormSource struct {
	mr    hostverbs.MR
	pages []uint64
	mem   *guestmem.Pages
	known *atomic.Pointer[stormRegion]
	// key is the key of the last registration. The owner's thread's.
	key uint32
	// due: the last request for it was a registration.
	due bool
}

func (s *stormSource) PullPages(wr *hostverbs.SendWR) (guestmem.Memory, error) {
	if err := s.mem.Fill(s.pages[:wr.Reg.Pages], guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		return nil, err
	}
	return s.mem, nil
}

func (s *stormSource) DropPages() { s.mem.Empty() }

// stormSRQ is a shared receive queue.
type stormSRQ struct {
	g   *stormGuest
	srq hostverbs.SRQ
	// What follows is the owner's thread's.
	rq     []hostverbs.RecvWR
	pulled map[uint64]bool
}

func (s *stormSRQ) PullRecv(wr *hostverbs.RecvWR) (bool, error) {
	if len(s.rq) == 0 {
		return false, nil
	}
	*wr = s.rq[0]
	s.rq = s.rq[1:]
	s.pulled[wr.WRID] = true
	return true, nil
}

func (s *stormSRQ) Posted() uint32            { return uint32(len(s.rq)) }
func (s *stormSRQ) Event(hostverbs.EventType) {}

// stormQP is a queue pair, its device, and what must become of what it posts. All but the first part is the owner's thread's.
type stormQP struct {
	g   *stormGuest
	typ hostverbs.QPType
	qp  hostverbs.QP
	srq *stormSRQ

	// live: it may be posted to. gone: it has ended, and nothing may be heard of it.
	live, gone, ready bool
	with              *stormGuest
	rung              []hostverbs.SendWR
	rq                []hostverbs.RecvWR
	sends             []posted
	recvs             []uint64
}

func (d *stormQP) describe() (s string) {
	d.g.owner.Do(func() {
		s = fmt.Sprintf("%d sends (%d with the device, ready %v), %d receives", len(d.sends), len(d.rung), d.ready, len(d.recvs))
	})
	return s + fmt.Sprintf(", %+v", must(d.qp.Query()).QPState)
}

// over ends the device.
func (d *stormQP) over() {
	d.forget()
	d.live, d.gone = false, true
	for i, x := range d.g.owner.devices {
		if x == d {
			d.g.owner.devices = append(d.g.owner.devices[:i:i], d.g.owner.devices[i+1:]...)
			return
		}
	}
}

// forget is what a device does after a RESET.
func (d *stormQP) forget() { d.rung, d.rq, d.sends, d.recvs = nil, nil, nil, nil }

// owes is how many completions are outstanding, of a queue pair in ERR.
func (d *stormQP) owes() int {
	if !d.live {
		return 0
	}
	n := len(d.sends)
	if d.srq == nil {
		n += len(d.recvs)
	}
	return n
}

// to asks for another state.
func (d *stormQP) to(s hostverbs.QPState) error {
	mask := hostverbs.QPStateMask
	if s == hostverbs.StateSQD {
		mask |= hostverbs.QPEnSQDAsyncNotify
	}
	return d.qp.Modify(&hostverbs.QPAttr{QPState: s, EnSQDAsyncNotify: true}, mask)
}

// renew resets the queue pair and connects it with another one, as far as that is possible.
func (d *stormQP) renew(rnd *rand.Rand, to stormPeer) {
	check(d.to(hostverbs.StateReset))
	d.g.owner.Do(func() { d.forget(); d.live = false })
	a := &hostverbs.QPAttr{
		PortNum: 1, PathMTU: hostverbs.MTU4096 - hostverbs.MTU(rnd.IntN(20)/19), DestQPNum: to.qpn, MaxRdAtomic: 1, MaxDestRdAtomic: 1,
		QPAccessFlags: stormAll, MinRNRTimer: uint8(1 + rnd.IntN(8)), Timeout: uint8(8 + rnd.IntN(4)), RNRRetry: 7 - uint8(rnd.IntN(20)/19),
		RetryCnt: 7, QKey: stormQKey,
		AHAttr: hostverbs.AHAttr{DGID: to.gid, GRH: true, PortNum: 1, SGIDIndex: 0},
	}
	for s := hostverbs.StateInit; s <= hostverbs.StateRTS; s++ {
		required, _, _ := hostverbs.Transition(d.typ, s-1, s)
		a.QPState = s
		if d.qp.Modify(a, required|hostverbs.QPStateMask) != nil {
			return // it has no address
		}
		if s == hostverbs.StateInit {
			d.g.owner.Do(func() { d.live, d.with = true, to.guest })
		}
	}
}

func (d *stormQP) PullRecv(wr *hostverbs.RecvWR) (bool, error) {
	if len(d.rq) == 0 {
		return false, nil
	}
	*wr = d.rq[0]
	d.rq = d.rq[1:]
	return true, nil
}

func (d *stormQP) CompleteSend(wc *hostverbs.WC) error {
	if d.gone {
		d.g.w.fault("send %d completes after the end of its queue pair", wc.WRID)
	}
	for len(d.sends) > 0 {
		s := d.sends[0]
		d.sends = d.sends[1:]
		if s.id == wc.WRID {
			if s.silent && wc.Status == hostverbs.WCSuccess {
				d.g.w.fault("the unsignalled request %d completed", s.id)
			}
			return nil
		}
		if !s.silent {
			d.g.w.fault("request %d was passed over by %d (%s)", s.id, wc.WRID, wc.Status)
		}
	}
	d.g.w.fault("nobody waits for the completion of request %d (%s)", wc.WRID, wc.Status)
	return nil
}

func (d *stormQP) CompleteRecv(wc *hostverbs.WC) error {
	switch {
	case d.gone:
		d.g.w.fault("receive %d completes after the end of its queue pair", wc.WRID)
	case d.srq != nil:
		if !d.srq.pulled[wc.WRID] {
			d.g.w.fault("receive %d of a shared queue completes and is not out", wc.WRID)
		}
		delete(d.srq.pulled, wc.WRID)
	case len(d.recvs) == 0 || d.recvs[0] != wc.WRID:
		d.g.w.fault("receive %d completed (%s), want one of %v in order", wc.WRID, wc.Status, d.recvs)
	default:
		d.recvs = d.recvs[1:]
	}
	return nil
}

func (d *stormQP) SendReady()                { d.ready = true }
func (d *stormQP) Event(hostverbs.EventType) {}

// pump posts what the device thinks of.
func (d *stormQP) pump() {
	if !d.live {
		return
	}
	o := d.g.owner
	if !o.still {
		d.post()
	}
	if d.ready && len(d.rung) > 0 {
		d.ready = false
		n := min(len(d.rung), 16)
		took := d.qp.PostSend(d.rung[:n])
		d.rung = d.rung[took:]
		d.ready = d.ready || took == n
	}
}

// last posts a request that is flushed: those before it have completed then, or succeeded in silence.
func (d *stormQP) last() {
	if d.live {
		wr := hostverbs.SendWR{WRID: d.g.w.ids.Add(1)}
		d.sends, d.rung, d.ready = append(d.sends, posted{wr.WRID, true}), append(d.rung, wr), true
	}
}

func (d *stormQP) post() {
	rnd := d.g.owner.rnd
	if len(d.recvs) < 16 && d.srq == nil && rnd.IntN(2) == 0 {
		wr := d.receive()
		d.recvs, d.rq = append(d.recvs, wr.WRID), append(d.rq, wr)
		d.qp.RecvPosted()
	}
	if s := d.srq; s != nil && len(s.rq) < 32 {
		s.rq = append(s.rq, d.receive())
	}
	if len(d.sends) < 32 && rnd.IntN(3) == 0 {
		wr := d.request()
		d.sends = append(d.sends, posted{wr.WRID, wr.Flags&hostverbs.SendSignaled == 0})
		d.rung = append(d.rung, wr)
		d.ready = true
	}
	if len(d.sends) >= 32 && !d.anySignalled() {
		d.sends = d.sends[len(d.sends)-len(d.rung)-1:] // they may be done, and nobody would say so
	}
}

func (d *stormQP) anySignalled() bool {
	for _, s := range d.sends {
		if !s.silent {
			return true
		}
	}
	return false
}

func (d *stormQP) receive() hostverbs.RecvWR {
	wr := hostverbs.RecvWR{WRID: d.g.w.ids.Add(1)}
	wr.NumSGE = d.sges(&wr.SGE, 18)
	return wr
}

// sges makes a list of pieces of the guest's regions, of up to 1<<bits bytes each, that is good most of the time.
func (d *stormQP) sges(to *[hostverbs.MaxSGE]hostverbs.SGE, bits int) uint8 {
	rnd := d.g.owner.rnd
	n := 1 + rnd.IntN(3)
	for i := range n {
		r := d.g.regions[rnd.IntN(stormRegions)].Load()
		if rnd.IntN(50) == 0 {
			r = d.g.regions[rnd.IntN(len(d.g.regions))].Load()
		}
		if r == nil {
			continue
		}
		size := uint64(1) << rnd.IntN(bits)
		if i == 0 && bits >= 18 {
			size = r.n
		}
		size = min(size, r.n)
		to[i] = hostverbs.SGE{Addr: r.start + rnd.Uint64N(r.n-size+1), Length: uint32(size), LKey: r.key}
		if rnd.IntN(5000) == 0 {
			to[i].LKey = rnd.Uint32()
		}
	}
	return uint8(n)
}

// stormOps are what a queue pair of a type mostly asks for.
var stormOps = map[hostverbs.QPType][]hostverbs.WROpcode{
	hostverbs.QPTypeRC: {
		hostverbs.OpSend, hostverbs.OpSend, hostverbs.OpSend, hostverbs.OpSendWithImm, hostverbs.OpRDMAWrite, hostverbs.OpRDMAWrite,
		hostverbs.OpRDMAWriteWithImm, hostverbs.OpRDMARead, hostverbs.OpRDMARead, hostverbs.OpAtomicFetchAndAdd,
		hostverbs.OpAtomicCmpAndSwp,
	},
	hostverbs.QPTypeUC: {
		hostverbs.OpSend, hostverbs.OpSendWithImm, hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm,
	},
	hostverbs.QPTypeUD:  {hostverbs.OpSend, hostverbs.OpSendWithImm},
	hostverbs.QPTypeGSI: {hostverbs.OpSend},
}

// request makes a work request, now and then of any kind.
func (d *stormQP) request() hostverbs.SendWR {
	rnd := d.g.owner.rnd
	ops, bits := stormOps[d.typ], 17
	wr := hostverbs.SendWR{
		WRID: d.g.w.ids.Add(1), Opcode: ops[rnd.IntN(len(ops))], Flags: hostverbs.SendFlags(rnd.IntN(8)),
		CompareAdd: rnd.Uint64N(4), Swap: rnd.Uint64N(4),
	}
	if d.typ == hostverbs.QPTypeRC && rnd.IntN(20) == 0 {
		wr.Opcode = hostverbs.OpRegMR
	}
	if rnd.IntN(2000) == 0 {
		wr.Opcode = hostverbs.WROpcode(rnd.IntN(12))
	}
	if d.typ == hostverbs.QPTypeUD || d.typ == hostverbs.QPTypeGSI {
		p := d.g.w.anybody(rnd)
		wr.RemoteQPN, wr.RemoteQKey = p.qpn, stormQKey
		wr.AH = hostverbs.AHAttr{DGID: p.gid, GRH: true, PortNum: 1}
		bits = 10
	}
	wr.NumSGE = d.sges(&wr.SGE, bits)
	d.target(&wr)
	return wr
}

// target fills in what a request names beside its own memory.
func (d *stormQP) target(wr *hostverbs.SendWR) {
	rnd := d.g.owner.rnd
	f := d.g.fast[rnd.IntN(stormFast)]
	switch wr.Opcode {
	case hostverbs.OpRegMR, hostverbs.OpLocalInv: // whichever is due
		wr.NumSGE = 0
		if f.due = !f.due; !f.due {
			wr.Opcode, wr.Imm = hostverbs.OpLocalInv, f.key
			return
		}
		wr.Opcode = hostverbs.OpRegMR
		f.key = f.key&^0xff | rnd.Uint32N(256)
		wr.RKey, wr.RemoteAddr = f.key, stormStart
		wr.Reg = hostverbs.RegWR{List: 1, Pages: stormPages, Length: stormSize, Access: stormAll}
		f.known.Store(&stormRegion{f.key, stormStart, stormSize})
	case hostverbs.OpSendWithInv:
		if r := d.peer().regions[stormRegions+rnd.IntN(stormFast)].Load(); r != nil {
			wr.Imm = r.key
		}
	default:
		i := rnd.IntN(stormRegions)
		if rnd.IntN(20) == 0 {
			i = stormRegions + rnd.IntN(stormFast)
		}
		if r := d.peer().regions[i].Load(); r != nil {
			total := hostverbs.Length(wr.SGE[:wr.NumSGE])
			wr.RKey, wr.RemoteAddr = r.key, r.start+rnd.Uint64N(max(1, r.n-min(r.n, total)))
		}
		if wr.Opcode == hostverbs.OpAtomicFetchAndAdd || wr.Opcode == hostverbs.OpAtomicCmpAndSwp {
			wr.RemoteAddr &^= 7
		}
	}
}

// peer is the guest that the queue pair was connected with.
func (d *stormQP) peer() *stormGuest {
	if d.with == nil {
		return d.g
	}
	return d.with
}

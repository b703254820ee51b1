// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"sync/atomic"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// device is the device's side of a queue pair: its rings, and what was delivered. It belongs to the owner's thread;
// the test looks at it between two visits.
type device struct {
	qp hostverbs.QP
	sq []hostverbs.SendWR
	rq []hostverbs.RecvWR
	// ring: the send queue has news for the engine.
	ring bool

	sent, received []hostverbs.WC
	events         []hostverbs.EventType
	pulls, readies int
	// sentAt is when the last send completion came.
	sentAt int64
	clock  Clock
	owner  *thread
	// posting: PostSend is being called. strayed counts callbacks on another thread than the owner's, and calls of
	// SendReady from PostSend, which the device could not answer.
	posting bool
	strayed atomic.Int32
	// What the next callbacks return.
	pullErr, sendErr, recvErr error
	// What, if set, is called by a callback.
	onSend, onRecv, onPull, onEvent func()
}

// pump posts what the send queue holds, if there is news, and says whether there was.
func (d *device) pump() bool {
	if !d.ring {
		return false
	}
	d.ring = false
	d.posting = true
	n := d.qp.PostSend(d.sq)
	d.posting = false
	spoil(d.sq[:n]) // the engine has copied what it needs
	d.sq = d.sq[n:]
	return n > 0
}

// spoil makes requests worthless.
func spoil(wrs []hostverbs.SendWR) {
	for i := range wrs {
		wrs[i] = hostverbs.SendWR{WRID: ^uint64(0), Opcode: hostverbs.OpInvalid, Flags: hostverbs.SendSignaled, NumSGE: 1}
	}
}

// here notes whether a callback came on the owner's thread.
func (d *device) here() {
	if !d.owner.current() {
		d.strayed.Add(1)
	}
}

func (d *device) PullRecv(wr *hostverbs.RecvWR) (bool, error) {
	d.here()
	d.pulls++
	if d.pullErr != nil {
		return false, d.pullErr
	}
	if len(d.rq) == 0 {
		return false, nil
	}
	*wr = d.rq[0]
	d.rq = d.rq[1:]
	hook(d.onPull)
	return true, nil
}

func (d *device) CompleteSend(wc *hostverbs.WC) error {
	d.here()
	d.sent = append(d.sent, *wc)
	d.sentAt = d.clock.Now()
	hook(d.onSend)
	return d.sendErr
}

func (d *device) CompleteRecv(wc *hostverbs.WC) error {
	d.here()
	d.received = append(d.received, *wc)
	hook(d.onRecv)
	return d.recvErr
}

func (d *device) SendReady() {
	d.here()
	if d.posting {
		d.strayed.Add(1)
	}
	d.readies++
	d.ring = true
}

func (d *device) Event(e hostverbs.EventType) {
	d.here()
	d.events = append(d.events, e)
	hook(d.onEvent)
}

// hook calls a function, if there is one.
func hook(fn func()) {
	if fn != nil {
		fn()
	}
}

// end is one end of a connection.
type end struct {
	g        *guest
	typ      hostverbs.QPType
	pd       hostverbs.PD
	scq, rcq hostverbs.CQ
	qp       hostverbs.QP
	dev      *device
}

// link are the attributes of one end.
type link struct {
	access                            hostverbs.AccessFlags
	mtu                               hostverbs.MTU
	sqPSN, rqPSN                      uint32
	timeout, retry, rnrRetry, minRNR  uint8
	rdAtomic, destRdAtomic, sgidIndex uint8
	dgid                              hostverbs.GID
	dest                              uint32
}

// timeoutCode is the retry timeout of the tests: 4.096 us * 2^8, about 1 ms.
const timeoutCode = 8

// qpCap is the size of the tests' queue pairs.
func qpCap() hostverbs.QPCap {
	return hostverbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: hostverbs.MaxSGE, MaxRecvSGE: hostverbs.MaxSGE}
}

// newEnd creates a queue pair of the guest in RESET.
func (g *guest) newEnd(typ hostverbs.QPType, sigAll bool) *end {
	g.w.t.Helper()
	return g.create(&hostverbs.QPInitAttr{Type: typ, Cap: qpCap(), SQSigAll: sigAll})
}

// create creates a queue pair with completion queues of its own.
func (g *guest) create(init *hostverbs.QPInitAttr) *end {
	g.w.t.Helper()
	return g.createIn(g.pd, init)
}

// createIn is create in another protection domain.
func (g *guest) createIn(pd hostverbs.PD, init *hostverbs.QPInitAttr) *end {
	g.w.t.Helper()
	e := &end{g: g, typ: init.Type, pd: pd, dev: &device{clock: g.w.env.Clock, owner: g.site.owner}}
	var err error
	if e.scq, err = g.ctx.CreateCQ(512); err != nil {
		g.w.t.Fatalf("create CQ: %v", err)
	}
	if e.rcq, err = g.ctx.CreateCQ(512); err != nil {
		g.w.t.Fatalf("create CQ: %v", err)
	}
	init.SendCQ, init.RecvCQ = e.scq, e.rcq
	if e.qp, err = g.ctx.CreateQP(e.pd, init, e.dev); err != nil {
		g.w.t.Fatalf("create QP: %v", err)
	}
	e.dev.qp = e.qp
	g.w.ends = append(g.w.ends, e)
	g.w.devices = append(g.w.devices, e.dev)
	return e
}

// linkTo are the attributes that connect e with p. The sequence numbers start just below their wrap.
func (e *end) linkTo(p *end) link {
	return link{
		access: everything, mtu: hostverbs.MTU1024,
		sqPSN: 0xfffffe - e.qp.QPN()%16, rqPSN: 0xfffffe - p.qp.QPN()%16,
		timeout: timeoutCode, retry: 3, rnrRetry: 3, minRNR: 12, rdAtomic: 16, destRdAtomic: 16,
		dgid: p.g.gid, dest: p.qp.QPN(),
	}
}

// The masks of the three steps to RTS.
const (
	maskInit = hostverbs.QPStateMask | hostverbs.QPPKeyIndex | hostverbs.QPPort | hostverbs.QPAccessFlagsMask
	maskRTR  = hostverbs.QPStateMask | hostverbs.QPAV | hostverbs.QPPathMTU | hostverbs.QPDestQPN | hostverbs.QPRQPSN |
		hostverbs.QPMaxDestRdAtomic | hostverbs.QPMinRNRTimer
	maskRTS = hostverbs.QPStateMask | hostverbs.QPTimeout | hostverbs.QPRetryCnt | hostverbs.QPRNRRetry |
		hostverbs.QPSQPSN | hostverbs.QPMaxQPRdAtomic
)

// attr are all attributes of the link, with the state to move to.
func (l *link) attr(next hostverbs.QPState) *hostverbs.QPAttr {
	return &hostverbs.QPAttr{
		QPState: next, PortNum: 1, QPAccessFlags: l.access, PathMTU: l.mtu, DestQPNum: l.dest,
		SQPSN: l.sqPSN, RQPSN: l.rqPSN, MinRNRTimer: l.minRNR, MaxRdAtomic: l.rdAtomic, MaxDestRdAtomic: l.destRdAtomic,
		Timeout: l.timeout, RetryCnt: l.retry, RNRRetry: l.rnrRetry,
		AHAttr: hostverbs.AHAttr{DGID: l.dgid, SGIDIndex: l.sgidIndex, GRH: true, PortNum: 1, HopLimit: 64, SL: 3},
	}
}

// up moves a queue pair from RESET to a state on the way to RTS.
func (e *end) up(l link, state hostverbs.QPState) {
	e.g.w.t.Helper()
	steps := []struct {
		state hostverbs.QPState
		mask  hostverbs.AttrMask
	}{{hostverbs.StateInit, maskInit}, {hostverbs.StateRTR, maskRTR}, {hostverbs.StateRTS, maskRTS}}
	for _, s := range steps {
		if s.state > state {
			return
		}
		if e.typ != hostverbs.QPTypeRC {
			required, _, _ := hostverbs.Transition(e.typ, s.state-1, s.state)
			s.mask = hostverbs.QPStateMask | required
		}
		e.modify(l.attr(s.state), s.mask)
	}
}

// modify is ibv_modify_qp, which must succeed.
func (e *end) modify(a *hostverbs.QPAttr, mask hostverbs.AttrMask) {
	e.g.w.t.Helper()
	if err := e.qp.Modify(a, mask); err != nil {
		e.g.w.t.Fatalf("modify to %s with %s: %v", a.QPState, mask, err)
	}
}

// to moves the queue pair to a state that needs nothing else.
func (e *end) to(s hostverbs.QPState) {
	e.g.w.t.Helper()
	e.modify(&hostverbs.QPAttr{QPState: s}, hostverbs.QPStateMask)
}

// state is the queue pair's state as the engine tells it.
func (e *end) state() hostverbs.QPState {
	e.g.w.t.Helper()
	a, err := e.qp.Query()
	if err != nil {
		e.g.w.t.Fatalf("query: %v", err)
	}
	return a.QPState
}

// pair connects two guests by RC queue pairs in RTS. tune, if not nil, changes the attributes of both ends before.
func (w *world) pair(a, b *guest, tune func(la, lb *link)) (*end, *end) {
	w.t.Helper()
	return w.pairOf(hostverbs.QPTypeRC, a, b, tune)
}

// pairOf is pair with queue pairs of a connected type.
func (w *world) pairOf(typ hostverbs.QPType, a, b *guest, tune func(la, lb *link)) (*end, *end) {
	w.t.Helper()
	ea, eb := a.newEnd(typ, false), b.newEnd(typ, false)
	la, lb := ea.linkTo(eb), eb.linkTo(ea)
	if tune != nil {
		tune(&la, &lb)
	}
	ea.up(la, hostverbs.StateRTS)
	eb.up(lb, hostverbs.StateRTS)
	return ea, eb
}

// do runs fn on the thread of the guest's owner.
func (e *end) do(fn func()) { e.g.site.owner.Do(fn) }

// send posts requests, which are signalled unless they say otherwise by the flag quiet.
func (e *end) send(wrs ...hostverbs.SendWR) {
	e.do(func() {
		e.dev.sq = append(e.dev.sq, wrs...)
		e.dev.ring = true
	})
}

// recv posts receives.
func (e *end) recv(wrs ...hostverbs.RecvWR) {
	e.do(func() {
		e.dev.rq = append(e.dev.rq, wrs...)
		e.qp.RecvPosted()
	})
}

// wr makes a signalled send request.
func wr(id uint64, op hostverbs.WROpcode, sges ...hostverbs.SGE) hostverbs.SendWR {
	w := hostverbs.SendWR{WRID: id, Opcode: op, Flags: hostverbs.SendSignaled, NumSGE: uint8(len(sges))}
	copy(w.SGE[:], sges)
	return w
}

// rdma makes a signalled request to the byte off of a remote region.
func rdma(id uint64, op hostverbs.WROpcode, far *region, off uint64, sges ...hostverbs.SGE) hostverbs.SendWR {
	w := wr(id, op, sges...)
	w.RemoteAddr, w.RKey = far.start+off, far.mr.RKey()
	return w
}

// rwr makes a receive request.
func rwr(id uint64, sges ...hostverbs.SGE) hostverbs.RecvWR {
	w := hostverbs.RecvWR{WRID: id, NumSGE: uint8(len(sges))}
	copy(w.SGE[:], sges)
	return w
}

// valid keeps of a completion what ibv_poll_cq(3) calls valid: after an error the request's name and the status.
func valid(wc hostverbs.WC) hostverbs.WC {
	if wc.Status != hostverbs.WCSuccess {
		return hostverbs.WC{WRID: wc.WRID, Status: wc.Status}
	}
	switch wc.Opcode {
	case hostverbs.WCOpRDMARead, hostverbs.WCOpCompSwap, hostverbs.WCOpFetchAdd, hostverbs.WCOpRecv, hostverbs.WCOpRecvRDMAWithImm:
	default:
		wc.ByteLen = 0
	}
	wc.SL, wc.PKeyIndex = 0, 0
	return wc
}

// compare fails if the completions are not those expected, and forgets them.
func (e *end) compare(what string, got *[]hostverbs.WC, want []hostverbs.WC) {
	e.g.w.t.Helper()
	for i := range *got {
		(*got)[i] = valid((*got)[i])
	}
	same(e.g.w.t, what+" of "+e.g.name+"'s QP", *got, want)
	*got = nil
}

// sends expects exactly these completions of the send queue since the last look.
func (e *end) sends(what string, want ...hostverbs.WC) {
	e.g.w.t.Helper()
	e.compare(what+": send completions", &e.dev.sent, want)
}

// recvs expects exactly these completions of the receive queue since the last look.
func (e *end) recvs(what string, want ...hostverbs.WC) {
	e.g.w.t.Helper()
	e.compare(what+": receive completions", &e.dev.received, want)
}

// events expects exactly these events since the last look.
func (e *end) events(what string, want ...hostverbs.EventType) {
	e.g.w.t.Helper()
	same(e.g.w.t, what+": events of "+e.g.name+"'s QP", e.dev.events, want)
	e.dev.events = nil
}

// same fails at the first place where two lists differ.
func same[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: %d, want %d; missing from number %d on: %+v", what, len(got), len(want), i, want[i])
		case i >= len(want):
			t.Errorf("%s: %d, want %d; not expected is number %d: %+v", what, len(got), len(want), i, got[i])
		case got[i] != want[i]:
			t.Errorf("%s, number %d of %d:\n got %+v\nwant %+v", what, i, len(want), got[i], want[i])
		default:
			continue
		}
		return
	}
}

// in expects the queue pair to be in a state.
func (e *end) in(what string, want hostverbs.QPState) {
	e.g.w.t.Helper()
	if got := e.state(); got != want {
		e.g.w.t.Errorf("%s: %s's QP is in %s, want %s", what, e.g.name, got, want)
	}
}

// failed is the completion of a request that failed.
func failed(id uint64, s hostverbs.WCStatus) hostverbs.WC {
	return hostverbs.WC{WRID: id, Status: s}
}

// done is the completion of a send request that succeeded; READs have a length too.
func done(id uint64, op hostverbs.WCOpcode) hostverbs.WC {
	return hostverbs.WC{WRID: id, Opcode: op}
}

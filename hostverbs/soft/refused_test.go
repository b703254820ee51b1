// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"reflect"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// inline is an owner whose thread is the test's.
type inline struct{}

func (inline) Do(fn func()) { fn() }
func (inline) Wake()        {}

// deaf is a device that counts what it is told, and has no receives.
type deaf struct{ told int }

func (d *deaf) PullRecv(*hostverbs.RecvWR) (bool, error) { return false, nil }
func (d *deaf) CompleteSend(*hostverbs.WC) error         { d.told++; return nil }
func (d *deaf) CompleteRecv(*hostverbs.WC) error         { d.told++; return nil }
func (d *deaf) SendReady()                               { d.told++ }
func (d *deaf) Event(hostverbs.EventType)                { d.told++ }

// patient is a queue pair of which everything can be compared.
type patient struct {
	t *testing.T
	q *qp
	d *deaf
}

// everything is what the engine knows of a queue pair, and what would show that it was touched.
type everything struct {
	QP                 qp
	Timers, Active     int
	Told               int
	Directory, Objects int
	Counters           [counters]uint64
}

func (p *patient) everything() everything {
	e := everything{
		QP: *p.q, Timers: p.q.pl.timers.Len(), Active: p.q.pl.active.n, Told: p.d.told, Directory: len(p.q.ctx.reachable),
		Objects: len(p.q.ctx.qps), Counters: p.q.pl.count.live,
	}
	e.QP.sq.timer.F = nil // the one thing that cannot be compared, and never changes
	return e
}

func ok(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// newPatient returns a queue pair in RESET, of a guest with one address.
func newPatient(t *testing.T, typ hostverbs.QPType) *patient {
	t.Helper()
	pl, err := New(nil).NewPoller(inline{})
	ok(t, err)
	ctx, err := pl.OpenContext(hostverbs.ContextConfig{Guest: "patient", GIDTableLen: 4})
	ok(t, err, ctx.BindGID(0, hostverbs.GID{15: 1}, hostverbs.GIDTypeRoCEv2))
	pd, err := ctx.AllocPD()
	ok(t, err)
	cq, err := ctx.CreateCQ(16)
	ok(t, err)
	p := &patient{t: t, d: &deaf{}}
	made, err := ctx.CreateQP(pd, &hostverbs.QPInitAttr{
		SendCQ: cq, RecvCQ: cq, Type: typ, Cap: hostverbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1},
	}, p.d)
	ok(t, err)
	p.q = made.(*qp)
	return p
}

// goodAttr are attributes that the engine accepts.
func goodAttr(from, to hostverbs.QPState) hostverbs.QPAttr {
	return hostverbs.QPAttr{
		QPState: to, CurQPState: from, PathMTU: hostverbs.MTU1024, QKey: 1, RQPSN: 2, SQPSN: 3, DestQPNum: 77, QPAccessFlags: 2,
		AHAttr: hostverbs.AHAttr{DGID: hostverbs.GID{15: 9}, GRH: true, PortNum: 1}, PortNum: 1, MaxRdAtomic: 1,
		MaxDestRdAtomic: 1, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7, EnSQDAsyncNotify: true,
	}
}

// otherAttr are acceptable, too, but each has another value: what a refused command took over is seen.
func otherAttr(from, to hostverbs.QPState) hostverbs.QPAttr {
	return hostverbs.QPAttr{
		QPState: to, CurQPState: from, PathMTU: hostverbs.MTU512, QKey: 4, RQPSN: 5, SQPSN: 6, DestQPNum: 78, QPAccessFlags: 4,
		AHAttr: hostverbs.AHAttr{DGID: hostverbs.GID{15: 8}, GRH: true, PortNum: 1, SL: 3}, PortNum: 1, MaxRdAtomic: 2,
		MaxDestRdAtomic: 2, MinRNRTimer: 13, Timeout: 15, RetryCnt: 6, RNRRetry: 6,
	}
}

// walk moves the queue pair through states.
func (p *patient) walk(states ...hostverbs.QPState) {
	p.t.Helper()
	for _, to := range states {
		from := p.q.attr.QPState
		required, _, _ := hostverbs.Transition(p.q.typ, from, to)
		attr := goodAttr(from, to)
		ok(p.t, p.q.Modify(&attr, required|hostverbs.QPStateMask))
		p.q.pl.Progress(1)
	}
}

// send posts a request. To a peer that does not answer it stays under way.
func (p *patient) send(op hostverbs.WROpcode) {
	p.t.Helper()
	if n := p.q.PostSend([]hostverbs.SendWR{{WRID: 1, Opcode: op, Flags: hostverbs.SendSignaled}}); n != 1 {
		p.t.Fatalf("the engine took %d requests", n)
	}
	p.q.pl.Progress(1)
}

// attempts calls fn with commands of which most are wrong: masks one bit away from the least and the largest of each
// transition, and values that are out of range.
func attempts(typ hostverbs.QPType, from hostverbs.QPState, fn func(attr hostverbs.QPAttr, mask hostverbs.AttrMask)) {
	for to := hostverbs.StateReset; to <= hostverbs.StateErr+1; to++ {
		required, optional, _ := hostverbs.Transition(typ, from, to)
		good := otherAttr(from, to)
		for _, mask := range []hostverbs.AttrMask{required | hostverbs.QPStateMask, required | optional | hostverbs.QPStateMask} {
			fn(good, mask)
			for bit := range 32 {
				fn(good, mask^1<<bit)
			}
			for _, spoil := range []func(*hostverbs.QPAttr){
				func(a *hostverbs.QPAttr) { a.CurQPState++ }, func(a *hostverbs.QPAttr) { a.PathMTU = 0 },
				func(a *hostverbs.QPAttr) { a.AHAttr.GRH = false }, func(a *hostverbs.QPAttr) { a.AHAttr.SGIDIndex = 3 },
				func(a *hostverbs.QPAttr) { a.AHAttr.SGIDIndex = 4 }, func(a *hostverbs.QPAttr) { a.PKeyIndex = 9 },
				func(a *hostverbs.QPAttr) { a.PortNum = 0 }, func(a *hostverbs.QPAttr) { a.Timeout = 32 },
				func(a *hostverbs.QPAttr) { a.MinRNRTimer = 32 }, func(a *hostverbs.QPAttr) { a.DestQPNum = 1 << 24 },
				func(a *hostverbs.QPAttr) { a.MaxRdAtomic = 17 }, func(a *hostverbs.QPAttr) { a.MaxDestRdAtomic = 17 },
				func(a *hostverbs.QPAttr) { a.RetryCnt = 8 }, func(a *hostverbs.QPAttr) { a.RNRRetry = 8 },
				func(a *hostverbs.QPAttr) { a.PathMigState = 1 },
			} {
				bad := good
				spoil(&bad)
				fn(bad, mask&^hostverbs.QPAltPath)
			}
		}
	}
}

func TestARefusedModifyLeavesEverythingAsItWas(t *testing.T) {
	const (
		reset, init, rtr, rts = hostverbs.StateReset, hostverbs.StateInit, hostverbs.StateRTR, hostverbs.StateRTS
		sqd, bad              = hostverbs.StateSQD, hostverbs.StateErr
	)
	rc, gsi := hostverbs.QPTypeRC, hostverbs.QPTypeGSI
	for _, c := range []struct {
		name string
		typ  hostverbs.QPType
		make func(p *patient)
		in   hostverbs.QPState
	}{
		{"RC in RESET", rc, func(*patient) {}, reset},
		{"RC in INIT", rc, func(p *patient) { p.walk(init) }, init},
		{"RC in RTR", rc, func(p *patient) { p.walk(init, rtr) }, rtr},
		{"RC in RTS", rc, func(p *patient) { p.walk(init, rtr, rts) }, rts},
		{"RC with a request under way", rc, func(p *patient) { p.walk(init, rtr, rts); p.send(hostverbs.OpSend) }, rts},
		{"RC drained", rc, func(p *patient) { p.walk(init, rtr, rts, sqd) }, sqd},
		{"RC that drains", rc, func(p *patient) { p.walk(init, rtr, rts); p.send(hostverbs.OpSend); p.walk(sqd) }, sqd},
		{"RC in ERR", rc, func(p *patient) { p.walk(init, bad) }, bad},
		{"RC that its device gave up", rc, func(p *patient) { p.walk(init, rtr, rts); p.q.Fail() }, bad},
		{"GSI in INIT", gsi, func(p *patient) { p.walk(init) }, init},
		{"GSI in RTS", gsi, func(p *patient) { p.walk(init, rtr, rts) }, rts},
		{"GSI in SQD", gsi, func(p *patient) { p.walk(init, rtr, rts, sqd) }, sqd},
		{"GSI in SQE", gsi, func(p *patient) { p.walk(init, rtr, rts); p.send(hostverbs.OpRDMARead) }, hostverbs.StateSQE},
	} {
		t.Run(c.name, func(t *testing.T) {
			refused, accepted := 0, 0
			p := newPatient(t, c.typ)
			c.make(p)
			if under := strings.Contains(c.name, "under way") || strings.Contains(c.name, "drains"); p.q.sq.busy != under || p.q.sq.timer.Armed() != under {
				t.Fatalf("a request is under way: %t, and waits: %t", p.q.sq.busy, p.q.sq.timer.Armed())
			}
			attempts(c.typ, c.in, func(attr hostverbs.QPAttr, mask hostverbs.AttrMask) {
				if got := p.q.attr.QPState; got != c.in {
					t.Fatalf("the queue pair is in %s, want %s", got, c.in)
				}
				before := p.everything()
				if err := p.q.Modify(&attr, mask); err == nil {
					accepted++
					p = newPatient(t, c.typ)
					c.make(p)
					return
				}
				refused++
				if after := p.everything(); !reflect.DeepEqual(before, after) {
					t.Fatalf("to %s with %s was refused, and changed something:\nwas %+v\nis  %+v", attr.QPState, mask, before, after)
				}
			})
			if refused < 300 || accepted < 2 {
				t.Errorf("%d attempts were refused, %d accepted: are these the right ones?", refused, accepted)
			}
		})
	}
}

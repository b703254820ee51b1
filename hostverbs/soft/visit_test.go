// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"bytes"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
)

// meter measures what one call into the engine did: bytes that arrived, and work requests that ended at each guest. What is
// sent is made of ones, and what has arrived is wiped out again.
type meter struct {
	t      *testing.T
	to     []byte
	guests [][]*sink
}

// call measures a call, which must stay within a visit's bounds.
func (m *meter) call(what string, fn func()) {
	m.t.Helper()
	var before []int
	for _, devices := range m.guests {
		before = append(before, ended(devices))
	}
	fn()
	if n := bytes.Count(m.to, []byte{1}); n > hostverbs.VisitBytes {
		m.t.Fatalf("%s moved %d bytes, want %d at most", what, n, hostverbs.VisitBytes)
	}
	clear(m.to)
	for i, devices := range m.guests {
		if n := ended(devices) - before[i]; n > hostverbs.VisitWRs {
			m.t.Fatalf("%s ended %d requests of guest %d, want %d at most", what, n, i, hostverbs.VisitWRs)
		}
	}
}

func ended(devices []*sink) (n int) {
	for _, d := range devices {
		n += d.sent + d.received
	}
	return n
}

func TestAVisitEndsAtItsBoundsWhateverIsPosted(t *testing.T) {
	const size = 4 << 20
	write, read, send := hostverbs.OpRDMAWrite, hostverbs.OpRDMARead, hostverbs.OpSend
	for name, c := range map[string]struct {
		op    hostverbs.WROpcode
		bytes uint32
		n     int
		spoil func(r *rig)
	}{
		"long WRITEs":            {op: write, bytes: size, n: 3},
		"long READs":             {op: read, bytes: size, n: 3},
		"long SENDs":             {op: send, bytes: size, n: 3},
		"WRITEs of a quarter":    {op: write, bytes: hostverbs.VisitBytes / 4, n: 100},
		"READs of a bit less":    {op: read, bytes: hostverbs.VisitBytes - 1, n: 20},
		"SENDs of a bit more":    {op: send, bytes: hostverbs.VisitBytes + 1, n: 20},
		"many WRITEs of nothing": {op: write, n: 1000},
		"many SENDs of a byte":   {op: send, bytes: 1, n: 1000},
		"bad requests":           {op: hostverbs.OpInvalid, n: 1000},
		"a bad key":              {op: write, bytes: 64, n: 1000, spoil: func(r *rig) { r.wrs[0].SGE[0].LKey++ }},
		"a bad remote key":       {op: write, bytes: 64, n: 1000, spoil: func(r *rig) { r.wrs[10].RKey++ }},
		"a queue pair in error":  {op: write, bytes: 64, n: 1000, spoil: func(r *rig) { r.qa.Fail() }},
		"a peer in error":        {op: write, bytes: 64, n: 1000, spoil: func(r *rig) { r.qb.Fail() }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(size)
			r.prepare(c.op, c.bytes, c.n)
			from, to := r.a.ram, r.b.ram
			if c.op == read {
				from, to = to, from
			}
			copy(from, bytes.Repeat([]byte{1}, size))
			if c.spoil != nil {
				c.spoil(r)
			}
			m := &meter{t: t, to: to, guests: [][]*sink{{r.da}, {r.db}}}
			wrs := r.wrs
			for calls := 0; r.da.sent < c.n; calls++ {
				if calls > 100*c.n {
					t.Fatalf("%d of %d requests ended after %d calls", r.da.sent, c.n, calls)
				}
				m.call("PostSend", func() { wrs = wrs[r.qa.PostSend(wrs):] })
				r.now += 100_000
				m.call("Progress", func() { r.p.Progress(r.now) })
			}
		})
	}
}

// crowd are many queue pairs of one guest, each connected with itself.
func crowd(p hostverbs.Poller, g *party, n int) (qps []hostverbs.QP, devices []*sink) {
	for range n {
		d := &sink{}
		q := g.create(d)
		connect(q, q, g)
		qps, devices = append(qps, q), append(devices, d)
	}
	return qps, devices
}

func TestAGuestHasOneVisitInAProgressHoweverManyQueuePairsWait(t *testing.T) {
	const size, many = 1 << 20, 300
	for name, start := range map[string]func(t *testing.T, q hostverbs.QP, w hostverbs.SendWR){
		"with long messages": func(t *testing.T, q hostverbs.QP, w hostverbs.SendWR) {
			if q.PostSend([]hostverbs.SendWR{w}) != 1 {
				t.Fatal("a message was not taken")
			}
		},
		"with receives to flush":      func(_ *testing.T, q hostverbs.QP, _ hostverbs.SendWR) { q.Fail() },
		"with nothing left after all": func(_ *testing.T, q hostverbs.QP, _ hostverbs.SendWR) { q.RecvPosted() },
	} {
		t.Run(name, func(t *testing.T) {
			guestmem.PrepareGoroutine()
			p := must(soft.New(nil).NewPoller(inline{}))
			g := join(p, guestmem.NewDomain(), 1, 2*size)
			copy(g.ram, bytes.Repeat([]byte{1}, size))
			qps, devices := crowd(p, g, many)
			w := hostverbs.SendWR{Opcode: hostverbs.OpRDMAWrite, NumSGE: 1, RKey: g.mr.RKey(), RemoteAddr: size}
			w.SGE[0] = hostverbs.SGE{Length: size, LKey: g.mr.LKey()}
			m := &meter{t: t, to: g.ram[size:], guests: [][]*sink{devices}}
			for _, q := range qps {
				start(t, q, w)
			}
			clear(m.to)
			now := int64(1)
			for range 3 * many {
				now += 1000
				m.call("Progress", func() { p.Progress(now) })
			}
		})
	}
}

func TestAMessageInManyPiecesEndsAVisitEarlier(t *testing.T) {
	// Arrange: 8 bytes in four elements at either end, whose boundaries fall together in one place only.
	const pieces = 7
	r := newRig(guestmem.PageSize)
	r.prepare(hostverbs.OpSend, 2, hostverbs.VisitWRs)
	for i := range r.wrs {
		r.wrs[i].NumSGE = 4
		for k := range 4 {
			r.wrs[i].SGE[k] = r.wrs[i].SGE[0]
		}
	}
	r.db.recv.NumSGE = 4
	for k, n := range []uint32{1, 2, 2, 3} {
		r.db.recv.SGE[k] = hostverbs.SGE{Length: n, LKey: r.b.mr.LKey()}
	}

	// Act, assert: as many pieces as a visit has time for are far fewer than its bytes.
	want := hostverbs.VisitBytes/soft.PieceCost/pieces + 1 // the last one is not finished
	if n := r.qa.PostSend(r.wrs); n != want {
		t.Errorf("a visit took %d requests of %d pieces, want %d", n, pieces, want)
	}
}

// puller counts how often it was asked for a receive. It has none.
type puller struct {
	sink
	pulls *int
}

func (p *puller) PullRecv(*hostverbs.RecvWR) (bool, error) {
	*p.pulls++
	return false, nil
}

func TestTriesInVainAreAVisitsWorkToo(t *testing.T) {
	// Arrange: many queue pairs that send to themselves and have no receive.
	const many = 4 * hostverbs.VisitWRs
	guestmem.PrepareGoroutine()
	p := must(soft.New(nil).NewPoller(inline{}))
	g := join(p, guestmem.NewDomain(), 1, guestmem.PageSize)
	pulls := 0
	w := []hostverbs.SendWR{{Opcode: hostverbs.OpSend}}
	for range many {
		q := g.create(&puller{pulls: &pulls})
		connect(q, q, g)
		q.PostSend(w)
	}
	now := int64(1)
	for range many { // all timers start
		p.Progress(now)
	}

	// Act: all are due.
	now += 1_000_000
	for pulls = 0; pulls < many; {
		before := pulls
		p.Progress(now)
		if n := pulls - before; n > hostverbs.VisitWRs || n == 0 {
			t.Fatalf("%d of %d tries in one Progress, want 1 to %d", n, many, hostverbs.VisitWRs)
		}
	}
}

func TestWhatIsUnderWayIsFlushedWithinTheVisit(t *testing.T) {
	// Arrange: a queue pair with a long message under way in each direction, and receives without end.
	const size = 4 * hostverbs.VisitBytes
	r := newRig(size)
	r.prepare(hostverbs.OpSend, size, 1)
	r.da.recv = r.db.recv
	r.da.recv.SGE[0].LKey = r.a.mr.LKey()
	back := r.wrs[0]
	back.SGE[0].LKey = r.b.mr.LKey()
	if r.qb.PostSend([]hostverbs.SendWR{back}) != 1 || r.qa.PostSend(r.wrs) != 1 || r.da.sent+r.db.sent != 0 {
		t.Fatal("no messages are under way")
	}

	// Act
	r.qb.Fail()
	r.p.Progress(r.now)

	// Assert
	if n := r.db.sent + r.db.received; r.db.sent != 1 || n < 3 || n > hostverbs.VisitWRs {
		t.Errorf("%d sends and %d receives were flushed in one visit, want %d at most", r.db.sent, r.db.received,
			hostverbs.VisitWRs)
	}
}

func TestVisitsAreShorterWhileMoreThanOneGuestSends(t *testing.T) {
	const size = 4 * hostverbs.VisitBytes
	r := newRig(size)
	copy(r.a.ram, bytes.Repeat([]byte{1}, size))
	long := func() (moved int) {
		r.prepare(hostverbs.OpRDMAWrite, size, 1)
		clear(r.b.ram)
		r.qa.PostSend(r.wrs)
		moved = bytes.Count(r.b.ram, []byte{1})
		for before := r.da.sent; r.da.sent == before; {
			r.p.Progress(r.now)
		}
		return moved
	}
	short := func() {
		w := hostverbs.SendWR{Opcode: hostverbs.OpRDMAWrite}
		if r.qb.PostSend([]hostverbs.SendWR{w}) != 1 {
			t.Fatal("a message was not taken")
		}
	}
	r.p.Progress(r.now)
	if n := long(); n != hostverbs.VisitBytes {
		t.Errorf("the only guest that sends moved %d bytes in a visit, want %d", n, hostverbs.VisitBytes)
	}
	short()
	if n := long(); n != soft.CrowdedBytes {
		t.Errorf("a guest moved %d bytes in a visit after another had sent, want %d", n, soft.CrowdedBytes)
	}
	r.now += soft.CrowdedFor
	r.p.Progress(r.now)
	if n := long(); n != hostverbs.VisitBytes {
		t.Errorf("a guest moved %d bytes in a visit long after another had sent, want %d", n, hostverbs.VisitBytes)
	}
}

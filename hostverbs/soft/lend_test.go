// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// pageless is a device's side of a region for fast registration that has no pages: the messages of these tests have no bytes.
type pageless struct{ pulled, dropped int }

func (p *pageless) PullPages(*hostverbs.SendWR) (guestmem.Memory, error) { p.pulled++; return nil, nil }
func (p *pageless) DropPages()                                           { p.dropped++ }

// teller is a device that keeps the completions of its send queue.
type teller struct {
	deaf
	sent []hostverbs.WC
}

func (d *teller) CompleteSend(wc *hostverbs.WC) error { d.sent = append(d.sent, *wc); return nil }

// lender is a guest with a region for fast registration, some of which is with another owner, and a second queue pair.
type lender struct {
	t          *testing.T
	home, away *poller
	near       *qp // has sent the message that is away
	other      *qp
	told       *teller // of other
	mr         *mr
	src        *pageless
	now        int64
}

// key is the region's key with a low byte.
func (l *lender) key(low uint8) uint32 { return l.mr.id&^keyByteMask | uint32(low) }

func (l *lender) reg(id uint64, low uint8) hostverbs.SendWR {
	return hostverbs.SendWR{
		WRID: id, Opcode: hostverbs.OpRegMR, Flags: hostverbs.SendSignaled, RKey: l.key(low),
		Reg: hostverbs.RegWR{Pages: 1, Length: 1, Access: hostverbs.AccessLocalWrite},
	}
}

func (l *lender) inv(id uint64, low uint8) hostverbs.SendWR {
	return hostverbs.SendWR{WRID: id, Opcode: hostverbs.OpLocalInv, Flags: hostverbs.SendSignaled, Imm: l.key(low)}
}

// post posts requests of the second queue pair, which must be taken.
func (l *lender) post(wrs ...hostverbs.SendWR) {
	l.t.Helper()
	if n := l.other.PostSend(wrs); n != len(wrs) {
		l.t.Fatalf("%d requests were taken, want %d", n, len(wrs))
	}
}

// run gives an owner its turn.
func (l *lender) run(pl *poller) {
	l.now++
	pl.Progress(l.now)
}

// expect looks at the second queue pair's completions.
func (l *lender) expect(what string, want ...hostverbs.WC) {
	l.t.Helper()
	got := l.told.sent
	l.told.sent = nil
	if len(got) != len(want) {
		l.t.Fatalf("%s: completions %+v, want %+v", what, got, want)
	}
	for i := range got {
		if got[i].WRID != want[i].WRID || got[i].Status != want[i].Status {
			l.t.Errorf("%s: %+v, want request %d with %s", what, got[i], want[i].WRID, want[i].Status)
		}
	}
}

// dropped expects that so many registrations were let go of.
func (l *lender) dropped(what string, want int) {
	l.t.Helper()
	if l.src.dropped != want {
		l.t.Errorf("%s: pages were let go of %d times, want %d", what, l.src.dropped, want)
	}
}

// newLender registers the region with the key byte 1, and sends a message of it to another owner, who has not looked yet.
func newLender(t *testing.T) *lender {
	t.Helper()
	e := New(nil)
	var pollers []hostverbs.Poller
	for range 2 {
		pl, err := e.NewPoller(inline{})
		ok(t, err)
		pollers = append(pollers, pl)
	}
	near, far := strangersAt(t, pollers...)
	l := &lender{t: t, home: near.pl, away: far.pl, near: near, told: &teller{}, src: &pageless{}, now: 1}
	made, err := near.ctx.AllocMR(near.pd, 1, l.src)
	ok(t, err)
	l.mr = made.(*mr)
	other, err := near.ctx.CreateQP(near.pd, &hostverbs.QPInitAttr{
		SendCQ: near.sendCQ, RecvCQ: near.recvCQ, Type: hostverbs.QPTypeRC, Cap: near.attr.Cap,
	}, l.told)
	ok(t, err)
	l.other = other.(*qp)
	join(t, l.other, far)
	l.post(l.reg(0, 1))
	l.expect("registered", hostverbs.WC{})
	l.send()
	return l
}

// send sends a message of the region. It has no bytes, but an entry.
func (l *lender) send() {
	l.t.Helper()
	wr := hostverbs.SendWR{Opcode: hostverbs.OpRDMAWrite, Flags: hostverbs.SendSignaled, NumSGE: 1}
	wr.SGE[0].LKey = l.key(1)
	if l.near.PostSend([]hostverbs.SendWR{wr}) != 1 || !l.near.sq.away {
		l.t.Fatal("the message is not away")
	}
}

func TestPagesThatAMessageHasAreKeptUntilItIsBack(t *testing.T) {
	for name, back := range map[string]func(l *lender) error{
		"with its answer":          func(l *lender) error { l.run(l.away); l.run(l.home); return nil },
		"since its sender is over": func(l *lender) error { return l.near.Destroy() },
		"since its sender is reset": func(l *lender) error {
			return l.near.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateReset}, hostverbs.QPStateMask)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLender(t)
			l.post(l.inv(1, 1))
			l.expect("invalidated", hostverbs.WC{WRID: 1})
			l.dropped("away", 0)
			ok(t, back(l))
			l.dropped("back", 1)
			l.post(l.reg(2, 2))
			l.expect("registered again", hostverbs.WC{WRID: 2})
		})
	}
}

func TestARegistrationThatWaitsForPagesEndsInEachWay(t *testing.T) {
	ok1, fail := hostverbs.WCSuccess, hostverbs.WCMWBindErr
	state := func(s hostverbs.QPState) func(l *lender) error {
		return func(l *lender) error {
			return l.other.Modify(&hostverbs.QPAttr{QPState: s}, hostverbs.QPStateMask)
		}
	}
	for name, c := range map[string]struct {
		end  func(l *lender) error
		want []hostverbs.WC
		// pulled and dropped are what the device sees of registrations in all.
		pulled, dropped int
	}{
		"the message is back":   {func(*lender) error { return nil }, []hostverbs.WC{{WRID: 2, Status: ok1}}, 2, 1},
		"in ERR":                {state(hostverbs.StateErr), []hostverbs.WC{{WRID: 2, Status: hostverbs.WCWRFlushErr}}, 1, 1},
		"in RESET":              {state(hostverbs.StateReset), nil, 1, 1},
		"destroyed":             {func(l *lender) error { return l.other.Destroy() }, nil, 1, 1},
		"without the region":    {func(l *lender) error { return l.mr.Dereg() }, []hostverbs.WC{{WRID: 2, Status: fail}}, 1, 0},
		"without the message":   {func(l *lender) error { return l.near.Destroy() }, []hostverbs.WC{{WRID: 2, Status: ok1}}, 2, 1},
		"without both of these": {func(l *lender) error { return errors.Join(l.mr.Dereg(), l.near.Destroy()) }, []hostverbs.WC{{WRID: 2, Status: fail}}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			// Arrange
			l := newLender(t)
			l.post(l.inv(1, 1), l.reg(2, 2))
			l.expect("it waits", hostverbs.WC{WRID: 1})
			if l.other.PostSend([]hostverbs.SendWR{l.inv(3, 2)}) != 0 {
				t.Fatal("a request that is behind it was taken")
			}
			for range 3 {
				if worked, _ := l.home.Progress(l.now); worked {
					t.Error("a registration that waits keeps its owner busy")
				}
			}

			// Act
			ok(t, c.end(l))
			for range 3 {
				l.run(l.away)
				l.run(l.home)
			}

			// Assert
			l.expect("it has waited", c.want...)
			if l.src.pulled != c.pulled || l.src.dropped != c.dropped {
				t.Errorf("%d registrations and %d invalidations reached the device, want %d and %d", l.src.pulled, l.src.dropped,
					c.pulled, c.dropped)
			}
		})
	}
}

func TestOfTwoRegistrationsThatWaitForOneRegionOneFails(t *testing.T) {
	l := newLender(t)
	l.post(l.inv(1, 1), l.reg(2, 2))
	second := &teller{}
	made, err := l.near.ctx.CreateQP(l.near.pd, &hostverbs.QPInitAttr{
		SendCQ: l.near.sendCQ, RecvCQ: l.near.recvCQ, Type: hostverbs.QPTypeRC, Cap: l.near.attr.Cap,
	}, second)
	ok(t, err)
	join(t, made.(*qp), l.near)
	made.PostSend([]hostverbs.SendWR{l.reg(3, 3)})
	if len(second.sent) != 1 || second.sent[0].Status != hostverbs.WCMWBindErr {
		t.Errorf("the second: %+v, want %s", second.sent, hostverbs.WCMWBindErr)
	}
	l.run(l.away)
	l.run(l.home)
	l.expect("the first", hostverbs.WC{WRID: 1}, hostverbs.WC{WRID: 2})
}

func TestARegistrationWaitsThoughOneBeforeItHasGivenUp(t *testing.T) {
	l := newLender(t)
	l.post(l.inv(1, 1), l.reg(2, 2))
	first := l.other
	ok(t, first.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateReset}, hostverbs.QPStateMask))
	made, err := l.near.ctx.CreateQP(l.near.pd, &hostverbs.QPInitAttr{
		SendCQ: l.near.sendCQ, RecvCQ: l.near.recvCQ, Type: hostverbs.QPTypeRC, Cap: l.near.attr.Cap,
	}, l.told)
	ok(t, err)
	l.other = made.(*qp)
	join(t, l.other, l.near)
	l.post(l.reg(3, 3))
	l.run(l.away)
	l.run(l.home)
	l.expect("the second", hostverbs.WC{WRID: 1}, hostverbs.WC{WRID: 3})
}

func TestAnInvalidationCallsNoMessageBackThatHasNothingOfTheRegion(t *testing.T) {
	l := newLender(t)
	made, err := l.near.ctx.AllocMR(l.near.pd, 1, &pageless{})
	ok(t, err)
	region := l.mr
	l.mr = made.(*mr)
	before := l.near.ctx.withdrawn.Load()
	l.post(l.reg(1, 1), l.inv(2, 1))
	ok(t, l.mr.Dereg())
	if l.near.ctx.withdrawn.Load() != before {
		t.Error("a region that no message has calls messages back")
	}
	l.mr = region
	l.post(l.inv(3, 1))
	if l.near.ctx.withdrawn.Load() == before {
		t.Error("a region that a message has does not call it back")
	}
}

func TestARegionThatWasInvalidatedHasNothingOfItsRegistration(t *testing.T) {
	l := newLender(t)
	l.post(l.inv(1, 1))
	if m := l.mr; m.key != 0 || m.mem != nil || m.access != 0 || m.start != 0 || m.length != 0 || m.offset != 0 {
		t.Errorf("the region has %+v", m)
	}
}

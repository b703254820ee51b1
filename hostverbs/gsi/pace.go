// SPDX-License-Identifier: Apache-2.0

package gsi

const (
	// Burst is how many management datagrams a guest sends at once: as many as Linux has under way, and a quarter of what it
	// has receives for.
	Burst = 128
	// Interval is the time after which it may send one more, in ns: 8,000 in a second, which make some 2,500 connections.
	Interval = 125_000
)

// Pace keeps a guest from filling the receives of another one's kernel faster than that can post them again, and so from
// cutting it off from all others. Who is too fast waits, and loses nothing. The zero Pace has sent nothing yet.
type Pace struct {
	// due is when all that was sent would have been if it had been sent in intervals.
	due int64
}

// Paces keeps the pace of each guest by name, for as long as the guest may come back: one that resets its device has sent what
// it has sent.
type Paces map[string]*Pace

// Of returns the pace of a guest, always the same.
func (p Paces) Of(guest string) *Pace {
	if p[guest] == nil {
		p[guest] = &Pace{}
	}
	return p[guest]
}

// Take says whether one more may be sent now, in ns on any clock, and counts it.
func (p *Pace) Take(now int64) bool {
	if p.Wait(now) > 0 {
		return false
	}
	p.due = max(p.due, now) + Interval
	return true
}

// Wait returns how long it takes until one more may be sent, in ns.
func (p *Pace) Wait(now int64) int64 {
	return max(0, p.due-now-(Burst-1)*Interval)
}

// SPDX-License-Identifier: Apache-2.0

package poster

import (
	"fmt"
	"slices"
	"time"
)

// patience is how long a flow waits for a completion.
const patience = 5 * time.Second

// clockEvery is how many polls pass between two looks at the clock.
const clockEvery = 1 << 12

// Lane is a connection: a send queue, where its completions come to, and memory on both sides.
type Lane struct {
	Send *Work
	CQ   *CQ
	// Recv and RecvCQ are the other end's, for messages that need a receive.
	Recv   *Work
	RecvCQ *CQ
	// From and To are all of the memory at this and at the other end.
	From, To Piece
}

// Op is what a message does.
type Op int

// Operations. A SEND comes with its receive at the other end. An atomic operation, which has 8 bytes, counts the word at
// its place.
const (
	WRITE Op = iota
	SEND
	READ
	FetchAdd
	CompareSwap
)

// String is the operation's name.
func (o Op) String() string {
	return [...]string{"WRITE", "SEND", "READ", "FETCH_AND_ADD", "CMP_AND_SWP"}[o]
}

// Atomic says whether the operation counts words.
func (o Op) Atomic() bool { return o >= FetchAdd }

// Flow is messages of one size over lanes, each lane in its turn.
type Flow struct {
	Lanes []Lane
	// Active is how many lanes are used, the first ones; 0 is all.
	Active int
	// Size is a message's length in bytes. The messages of a lane walk through Slots places of the memory, Size bytes
	// apart.
	Size, Slots int
	// Window is the number of messages under way.
	Window int
	// List is how many messages are posted with one doorbell, at most the window; 0 is 1.
	List int
	// Op is what the messages are.
	Op Op

	posted, done uint64
	lane         int // the next one's
	// cqs are the completion queues of the active lanes, and those of their receives.
	cqs, recvCQs []*CQ
}

// place returns where message i of its lane lies.
func (f *Flow) place(p Piece, i uint64) Piece {
	at := int(i%uint64(f.Slots)) * f.Size
	return Piece{Addr: p.Addr + uint64(at), Len: uint32(f.Size), Key: p.Key}
}

// Posted is how many messages were posted.
func (f *Flow) Posted() uint64 { return f.posted }

// ActiveLanes is how many lanes are used.
func (f *Flow) ActiveLanes() int {
	if f.Active == 0 {
		return len(f.Lanes)
	}
	return f.Active
}

// post posts the next messages of a lane. Lanes are deep enough for the window.
func (f *Flow) post(count int) {
	n := uint64(f.ActiveLanes())
	l, i := &f.Lanes[f.lane], f.posted/n
	for range count {
		f.put(l, i, f.place(l.From, i), f.place(l.To, i))
		f.posted++
		i++
	}
	l.Send.Ring()
	if f.lane++; f.lane == int(n) {
		f.lane = 0
	}
}

// put writes the request for message i of a lane.
func (f *Flow) put(l *Lane, i uint64, near, far Piece) {
	switch f.Op {
	case WRITE:
		l.Send.Write(i, near, far)
	case SEND:
		l.Send.Send(i, f.place(l.From, f.receive(l)))
	case READ:
		l.Send.Read(i, near, far)
	case FetchAdd:
		l.Send.FetchAdd(i, near, far, 1)
	case CompareSwap:
		n := i / uint64(f.Slots) // how often the word was counted before
		l.Send.CompareSwap(i, near, far, n, n+1)
	}
}

// receives is how many receives are posted with one doorbell, when fewer than as many are left: programs keep a queue of
// them.
const receives = 16

// receive returns the number of the receive that takes the next message of a lane, having posted more if there are few.
// Those of a flow are left for the next one of the same sizes.
func (f *Flow) receive(l *Lane) uint64 {
	r := l.Recv
	if r.posted-r.matched < receives {
		for range receives {
			r.Recv(r.posted, f.place(l.To, r.posted))
			r.posted++
		}
		r.Ring()
	}
	r.matched++
	return r.matched - 1
}

// reap takes what has been completed, and says whether there was something.
func (f *Flow) reap() (bool, error) {
	if f.cqs == nil {
		f.findQueues()
	}
	before := f.done
	for _, c := range f.cqs {
		n, _, err := c.Poll(f.Window)
		if err != nil {
			return false, err
		}
		f.done += uint64(n)
	}
	for _, c := range f.recvCQs {
		if _, _, err := c.Poll(f.Window); err != nil {
			return false, err
		}
	}
	return f.done != before, nil
}

func (f *Flow) findQueues() {
	for _, l := range f.Lanes[:f.ActiveLanes()] {
		if !slices.Contains(f.cqs, l.CQ) {
			f.cqs = append(f.cqs, l.CQ)
		}
		if f.Op == SEND && !slices.Contains(f.recvCQs, l.RecvCQ) {
			f.recvCQs = append(f.recvCQs, l.RecvCQ)
		}
	}
}

// await polls until something is completed.
func (f *Flow) await() error {
	var deadline time.Time
	for i := 1; ; i++ {
		ok, err := f.reap()
		if ok || err != nil {
			return err
		}
		if i%clockEvery != 0 {
			continue
		}
		if deadline.IsZero() {
			deadline = time.Now().Add(patience)
		} else if time.Now().After(deadline) {
			return fmt.Errorf("message %d of %d is not completed within %v", f.done, f.posted, patience)
		}
	}
}

// drain waits until nothing is under way.
func (f *Flow) drain() error {
	for f.done < f.posted {
		if err := f.await(); err != nil {
			return err
		}
	}
	return nil
}

// Latency sends one message after the other for a while and returns the time in ns from before a message is posted until
// its completion is seen: the median and the 99th percentile. A reading of the clock is part of each.
func (f *Flow) Latency(d time.Duration) (p50, p99 float64, err error) {
	const most = 1 << 20
	times := make([]int32, 0, most)
	begin := time.Now()
	last := time.Duration(0)
	for last < d && len(times) < most {
		f.post(1)
		if err := f.await(); err != nil {
			return 0, 0, err
		}
		now := time.Since(begin)
		times = append(times, int32(now-last))
		last = now
	}
	slices.Sort(times)
	return float64(times[len(times)/2]), float64(times[len(times)*99/100]), nil
}

// Rate sends messages for a while, as many under way as the window allows, and returns the time in ns that one takes.
func (f *Flow) Rate(d time.Duration) (perMessage float64, err error) {
	const chunk = 32
	begin, first := time.Now(), f.posted
	for time.Since(begin) < d {
		if err := f.send(chunk); err != nil {
			return 0, err
		}
	}
	if err := f.drain(); err != nil {
		return 0, err
	}
	return float64(time.Since(begin).Nanoseconds()) / float64(f.posted-first), nil
}

// Count sends n messages and waits for their completions.
func (f *Flow) Count(n uint64) error {
	if err := f.send(n); err != nil {
		return err
	}
	return f.drain()
}

func (f *Flow) send(n uint64) error {
	list := max(1, f.List)
	for n > 0 {
		count := min(list, int(n))
		for f.posted-f.done+uint64(count) > uint64(f.Window) {
			if err := f.await(); err != nil {
				return err
			}
		}
		f.post(count)
		n -= uint64(count)
	}
	return nil
}

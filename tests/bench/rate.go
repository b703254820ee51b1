// SPDX-License-Identifier: Apache-2.0

package main

// smallWindow is how many small messages are under way at once, smallList how many are posted with one doorbell where a
// program posts lists: the less the guest has to do, the more the other side is seen.
const (
	smallWindow = 32
	smallList   = 16
)

// millions turns the time of a message in ns into millions of messages in a second.
func millions(ns float64) float64 { return 1e3 / ns }

// measureRate measures how many 64-byte WRITEs one connection carries with 32 under way.
func measureRate(b *bench) ([]result, error) {
	w, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots})
	if err != nil {
		return nil, err
	}
	defer w.close()
	bare, err := w.makeBare(bareShape(1, smallDepth))
	if err != nil {
		return nil, err
	}
	var all []result
	for _, list := range []int{1, smallList} {
		q := flowRequest{Size: smallSize, Slots: smallSlots, Window: smallWindow, List: list, Time: b.turn}
		name := "64 B WRITE, 32 under way"
		if list > 1 {
			name = "the same in lists of 16"
		}
		r, err := b.turns(name, "M/s", "bare loop",
			func() (float64, error) { v, err := w.rate(q); return millions(v), err },
			func() (float64, error) { v, err := w.bareRate(q, bare); return millions(v), err }, aim{AtLeast: 0.6})
		all = append(all, r)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// rate returns the time in ns that a message of a flow takes through the daemon, bareRate through a bare loop.
func (w *world) rate(q flowRequest) (float64, error) {
	var a flowAnswer
	err := w.subject("rate", q, &a)
	return a.PerMessage, err
}

func (w *world) bareRate(q flowRequest, bare bareRequest) (float64, error) {
	q.Bare = true
	var a flowAnswer
	err := w.against("rate", q, "bare", bare, &a)
	return a.PerMessage, err
}

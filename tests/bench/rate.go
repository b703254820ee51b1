// SPDX-License-Identifier: Apache-2.0

package main

// smallWindow is how many small messages are under way at once.
const smallWindow = 32

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
	q := flowRequest{Size: smallSize, Slots: smallSlots, Window: smallWindow, Time: b.turn}
	r, err := b.turns("64 B WRITE, 32 under way", "M/s", "bare loop",
		func() (float64, error) { v, err := w.rate(q); return millions(v), err },
		func() (float64, error) { v, err := w.bareRate(q, bare); return millions(v), err }, aim{AtLeast: 0.6})
	return []result{r}, err
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

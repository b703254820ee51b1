// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/pvrdmad/pvrdmad/tests/bench/bareloop"

// Small messages: 64 bytes, in 64 places of the memory of each side.
const (
	smallSize  = 64
	smallSlots = 64
	smallDepth = 64
)

// bareShape is the bare loop's shape for some queues and small messages.
func bareShape(queues, depth int) bareloop.Shape {
	return bareloop.Shape{Queues: queues, Depth: depth, CQE: cqe, Payload: smallSize * smallSlots}
}

// makeBare makes the memory of a bare loop.
func (w *world) makeBare(s bareloop.Shape) (q bareRequest, err error) {
	q.Shape = s
	return q, w.guest.call("shared", s, &q.Path)
}

// measureLatency measures one 64-byte WRITE at a time. Its bound is the bare loop, and that one's is a cache line that is
// passed there and back.
func measureLatency(b *bench) ([]result, error) {
	w, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots})
	if err != nil {
		return nil, err
	}
	defer w.close()
	bare, err := w.makeBare(bareShape(1, smallDepth))
	if err != nil {
		return nil, err
	}
	q := flowRequest{Size: smallSize, Slots: smallSlots, Window: 1, Time: b.turn}
	var tails []float64
	subject := func() (float64, error) {
		var a flowAnswer
		err := w.subject("latency", q, &a)
		tails = append(tails, a.P99)
		return a.P50, err
	}
	loop := func() (float64, error) { return w.bareLatency(q, bare) }
	line := func() (float64, error) {
		var a flowAnswer
		err := w.against("ping", pingRequest{b.turn}, "pong", bare, &a)
		return a.P50, err
	}
	r1, err := b.turns("bare loop, 64 B WRITE, p50", "ns", "cache line, there and back", loop, line, aim{AtMost: 3})
	if err != nil {
		return nil, err
	}
	r2, err := b.turns("64 B WRITE, p50", "ns", "bare loop", subject, loop, aim{AtMost: 2})
	if err != nil {
		return nil, err
	}
	r3 := result{Name: "64 B WRITE, p99", Unit: "ns", Value: spreadOf(tails), Rounds: len(tails)}
	r4, err := measurePolling(b)
	return []result{r1, r2, r3, r4}, err
}

func (w *world) bareLatency(q flowRequest, bare bareRequest) (float64, error) {
	q.Bare = true
	var a flowAnswer
	err := w.against("latency", q, "bare", bare, &a)
	return a.P50, err
}

// measurePolling is the latency that a program sees which stores into its doorbell page whenever it finds no
// completion, as rdma-core's provider does.
func measurePolling(b *bench) (r result, err error) {
	w, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots, Polling: true})
	if err != nil {
		return r, err
	}
	defer w.close()
	bare, err := w.makeBare(bareShape(1, smallDepth))
	if err != nil {
		return r, err
	}
	q := flowRequest{Size: smallSize, Slots: smallSlots, Window: 1, Time: b.turn}
	subject := func() (float64, error) {
		var a flowAnswer
		err := w.subject("latency", q, &a)
		return a.P50, err
	}
	loop := func() (float64, error) { return w.bareLatency(q, bare) }
	return b.turns("64 B WRITE with POLL words, p50", "ns", "bare loop without them", subject, loop, aim{})
}

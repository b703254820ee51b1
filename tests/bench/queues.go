// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
)

// perPair is the most queue pairs between two guests: half of what a guest can have.
const perPair = 4000

// queueSlots is how many places of memory the messages of many queues walk through.
const queueSlots = 4

// measureQueues measures what a message costs among many queue pairs: if one of them is active, against the same with
// one alone, and if all are, against the bare loop with as many rings.
func measureQueues(b *bench) ([]result, error) {
	sizes := []int{16, 256, 1000, 10000}
	if b.short {
		sizes = []int{256}
	}
	one, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots})
	if err != nil {
		return nil, err
	}
	defer one.close()
	var all []result
	for _, n := range sizes {
		r, err := measureQueueCount(b, one, n)
		all = append(all, r...)
		if err != nil {
			return all, fmt.Errorf("%d queue pairs: %w", n, err)
		}
		one.hold()
	}
	r, err := measureGuestCount(b, one)
	return append(all, r...), err
}

// manyGuests is how many guests there are where one of them sends.
const manyGuests = 64

// measureGuestCount measures what a message costs among many guests of which one is active.
func measureGuestCount(b *bench, one *world) ([]result, error) {
	pairs := manyGuests / 2
	w, err := b.open(worldOptions{Pairs: pairs, Queues: pairs, Depth: smallDepth, Bytes: smallSize * smallSlots})
	if err != nil {
		return nil, fmt.Errorf("%d guests: %w", manyGuests, err)
	}
	defer w.close()
	return measureOneOf(b, w, one, fmt.Sprintf("%d guests", manyGuests))
}

// measureOneOf measures a message of the first queue pair of a world against one of a world that has no other.
func measureOneOf(b *bench, w, one *world, crowd string) ([]result, error) {
	single := flowRequest{Size: smallSize, Slots: queueSlots, Window: 1, Active: 1, Time: b.turn}
	p50 := func(w, other *world) func() (float64, error) {
		return func() (float64, error) {
			other.hold()
			var a flowAnswer
			err := w.subject("latency", single, &a)
			return a.P50, err
		}
	}
	r1, err := b.turns("64 B WRITE, p50, 1 of "+crowd+" active", "ns", "1 of 1", p50(w, one), p50(one, w), aim{AtMost: 1.1})
	if err != nil {
		return nil, err
	}
	one.hold()
	many := single
	many.Window = smallWindow
	rate := func(w, other *world) func() (float64, error) {
		return func() (float64, error) { other.hold(); return w.rate(many) }
	}
	r2, err := b.turns("64 B WRITE, 32 under way, 1 of "+crowd, "ns", "1 of 1", rate(w, one), rate(one, w), aim{AtMost: 1.1})
	one.hold()
	return []result{r1, r2}, err
}

func measureQueueCount(b *bench, one *world, n int) ([]result, error) {
	pairs := (n + perPair - 1) / perPair
	w, err := b.open(worldOptions{Pairs: pairs, Queues: n, Depth: smallDepth, Bytes: smallSize * smallSlots})
	if err != nil {
		return nil, err
	}
	defer w.close()
	bare, err := w.makeBare(bareShape(n, smallDepth))
	if err != nil {
		return nil, err
	}
	all, err := measureOneOf(b, w, one, strconv.Itoa(n))
	if err != nil {
		return all, err
	}
	many := flowRequest{Size: smallSize, Slots: queueSlots, Window: min(n, 1024), Time: b.turn}
	r, err := b.turns(fmt.Sprintf("64 B WRITE, all of %d active", n), "ns", "bare loop", func() (float64, error) { return w.rate(many) },
		func() (float64, error) { return w.bareRate(many, bare) }, aim{AtMost: 1.3})
	return append(all, r), err
}

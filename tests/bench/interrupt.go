// SPDX-License-Identifier: Apache-2.0

package main

// maxInterrupts is how many interrupts a thousand completions of a program that polls may cause.
const maxInterrupts = 1

// interruptAnswer is what the messages' completions caused.
type interruptAnswer struct{ Interrupts, Completions float64 }

// measureInterrupts measures how often a guest is interrupted for a program that polls, and stores a word into its doorbell
// page that may be an arm whenever it finds no completion, as rdma-core does.
func measureInterrupts(b *bench) (all []result, err error) {
	w, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: largeSize * 4, Polling: true})
	if err != nil {
		return nil, err
	}
	defer w.close()
	for _, m := range []struct {
		name                string
		size, slots, window int
		count               uint64
	}{
		{"64 B, one at a time", smallSize, smallSlots, 1, 100_000},
		{"64 B, 32 under way", smallSize, smallSlots, smallWindow, 100_000},
		{"1 MiB", largeSize, 4, 1, 2_000},
	} {
		var rates []float64
		for range b.rounds {
			var a interruptAnswer
			q := flowRequest{Size: m.size, Slots: m.slots, Window: m.window, Count: m.count}
			if err := w.subject("interrupts", q, &a); err != nil {
				return all, err
			}
			rates = append(rates, 1000*a.Interrupts/a.Completions)
		}
		all = append(all, bounded("interrupts of a poller, "+m.name, "/1000", rates, maxInterrupts))
	}
	return all, nil
}

// countInterrupts sends messages and counts the interrupts of the guest that sends.
func countInterrupts(c *child, q flowRequest) (a interruptAnswer, err error) {
	dev := c.guests[0].a.m.Dev
	before, err := dev.EventStats()
	if err != nil {
		return a, err
	}
	if _, err := flowCount(c, q); err != nil {
		return a, err
	}
	after, err := dev.EventStats()
	return interruptAnswer{float64(after.CQEvents - before.CQEvents), float64(q.Count)}, err
}

// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// Large messages: 1 MiB, 16 places of the memory of each side, so that neither side's memory stays in the caches of a
// core.
const (
	largeSize   = 1 << 20
	largeSlots  = 16
	largeWindow = 4
)

// measureBandwidth measures messages of 1 MiB. Their bound is a copy of the same bytes from and to the same pages, on the
// worker's processor.
func measureBandwidth(b *bench) ([]result, error) {
	var all []result
	for _, scatter := range []bool{false, true} {
		r, err := measureLayout(b, scatter)
		all = append(all, r...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func measureLayout(b *bench, scatter bool) ([]result, error) {
	w, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: largeSize * largeSlots, Scatter: scatter})
	if err != nil {
		return nil, err
	}
	defer w.close()
	var c copyRequest
	if err := w.guest.call("layout", nil, &c); err != nil {
		return nil, err
	}
	c.Size, c.Slots, c.Time = largeSize, largeSlots, b.turn
	plain := func() (float64, error) {
		w.hold()
		var a flowAnswer
		err := w.far.call("memcpy", c, &a)
		return largeSize / a.PerMessage, err
	}
	layout, a := "adjacent pages", aim{AtLeast: 0.9}
	if scatter {
		layout, a = "scattered 4 KiB pages", aim{}
	}
	var all []result
	for _, send := range []bool{false, true} {
		q := flowRequest{Size: largeSize, Slots: largeSlots, Window: largeWindow, SEND: send, Time: b.turn}
		op := "WRITE"
		if send {
			op = "SEND"
		}
		subject := func() (float64, error) {
			v, err := w.rate(q)
			return largeSize / v, err
		}
		r, err := b.turns(fmt.Sprintf("1 MiB %s, %s", op, layout), "GB/s", "copy of the same pages", subject, plain, a)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/tests/bench/poster"
)

// atomicSize is what an atomic operation has, in bytes.
const atomicSize = 8

// operationAims are what an operation may take, compared with a WRITE of the same size over the same connection.
var operationAims = []struct {
	op    poster.Op
	size  int
	slots int
	aim   aim
}{
	{poster.READ, smallSize, smallSlots, aim{AtMost: 1.5}},
	{poster.SEND, smallSize, smallSlots, aim{AtMost: 1.3}},
	{poster.FetchAdd, atomicSize, smallSlots, aim{AtMost: 1.5}},
	{poster.CompareSwap, atomicSize, smallSlots, aim{AtMost: 1.5}},
}

// measureOperations measures the operations against the WRITE: one at a time, and 32 under way.
func measureOperations(b *bench) ([]result, error) {
	w, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots})
	if err != nil {
		return nil, err
	}
	defer w.close()
	var all []result
	for _, o := range operationAims {
		of := func(what string, op poster.Op, window int) func() (float64, error) {
			return func() (float64, error) {
				var a flowAnswer
				err := w.subject(what, flowRequest{Size: o.size, Slots: o.slots, Window: window, Op: op, Time: b.turn}, &a)
				return max(a.P50, a.PerMessage), err // one of the two is 0
			}
		}
		bound := fmt.Sprintf("%d B WRITE", o.size)
		for _, c := range []struct {
			what, name string
			window     int
		}{{"latency", "p50", 1}, {"rate", "32 under way", smallWindow}} {
			r, err := b.turns(fmt.Sprintf("%d B %s, %s", o.size, o.op, c.name), "ns", bound,
				of(c.what, o.op, c.window), of(c.what, poster.WRITE, c.window), o.aim)
			if err != nil {
				return all, err
			}
			all = append(all, r)
		}
	}
	return all, nil
}

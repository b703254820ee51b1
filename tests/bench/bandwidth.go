// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/tests/bench/poster"
)

// Large messages: 1 MiB, 16 places of the memory of each side, so that neither side's memory stays in the caches of a
// core.
const (
	largeSize   = 1 << 20
	largeSlots  = 16
	largeWindow = 4
)

// layouts are how the memory lies, in the guest and in the daemon.
var layouts = []struct {
	name, bound string
	scatter     bool
	// windows is the daemon's key of that name.
	windows string
	// sideBySide says that the bound has the same pages mapped as the daemon's windows have them.
	sideBySide bool
	aim        aim
}{
	{name: "adjacent pages", bound: "copy of the same pages", windows: "auto", aim: aim{AtLeast: 0.9}},
	{
		name: "scattered 4 KiB pages", bound: "copy of the same pages, mapped side by side", scatter: true, windows: "auto", sideBySide: true,
		aim: aim{AtLeast: 0.9},
	},
	{name: "the same without a window", bound: "copy of the same pages", scatter: true, windows: "off"},
}

// measureBandwidth measures messages of 1 MiB. Their bound is a copy of the same bytes from and to the same pages, on the
// worker's processor: in one piece where the daemon has a window, else page by page if they are not adjacent.
func measureBandwidth(b *bench) ([]result, error) {
	var all []result
	for i := range layouts {
		r, err := measureLayout(b, i)
		all = append(all, r...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func measureLayout(b *bench, i int) ([]result, error) {
	l := &layouts[i]
	w, err := b.open(worldOptions{
		Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: largeSize * largeSlots, Scatter: l.scatter, Windows: l.windows,
	})
	if err != nil {
		return nil, err
	}
	defer w.close()
	var c copyRequest
	if err := w.guest.call("layout", nil, &c); err != nil {
		return nil, err
	}
	c.Size, c.Slots, c.Time, c.SideBySide = largeSize, largeSlots, b.turn, l.sideBySide
	plain := func() (float64, error) {
		w.hold()
		var a flowAnswer
		err := w.far.call("memcpy", c, &a)
		return largeSize / a.PerMessage, err
	}
	var all []result
	for _, op := range []poster.Op{poster.WRITE, poster.SEND} {
		q := flowRequest{Size: largeSize, Slots: largeSlots, Window: largeWindow, Op: op, Time: b.turn}
		subject := func() (float64, error) {
			v, err := w.rate(q)
			return largeSize / v, err
		}
		r, err := b.turns(fmt.Sprintf("1 MiB %s, %s", op, l.name), "GB/s", l.bound, subject, plain, l.aim)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

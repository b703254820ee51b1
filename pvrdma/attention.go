// SPDX-License-Identifier: Apache-2.0

package pvrdma

import "slices"

const (
	// slice is how many devices that have been quiet for long a pass of a worker that spins looks at, besides all others: so
	// a message of one guest waits for looks at these, not at every guest there is.
	slice = 2
	// quietPasses is how many looks in vain make a device quiet, less than a millisecond's.
	quietPasses = 4096
)

// attention is which devices a worker looks at. Worker.
type attention struct {
	// lively are the devices that are not quiet, chosen those that this pass looks at.
	lively, chosen []*Device
	// at is the index in Worker.devices of the quiet device that is looked at next, turn the one in lively of the busy device
	// that was visited last.
	at, turn int
}

// choose decides which devices the pass looks at: all, or if it is one of many that follow each other, those that are lively
// and a few others. A worker that may sleep has looked at all before.
func (w *Worker) choose(spins bool) {
	if !spins || len(w.devices) <= slice {
		w.chosen = append(w.chosen[:0], w.devices...)
		return
	}
	w.chosen = append(w.chosen[:0], w.lively...)
	for range slice {
		if w.at++; w.at >= len(w.devices) {
			w.at = 0
		}
		if d := w.devices[w.at]; !d.lively {
			w.chosen = append(w.chosen, d)
		}
	}
}

// note takes a device among the lively ones if there was something to do for it or will be at a known time, and out of them if
// there was nothing for long.
func (w *Worker) note(d *Device, active bool) {
	switch {
	case active || d.busy:
		d.inVain = 0
		if !d.lively {
			d.lively = true
			w.lively = append(w.lively, d)
		}
	case d.lively:
		if d.inVain++; d.inVain > quietPasses {
			w.forget(d)
		}
	}
}

// forget takes a device out of the lively ones.
func (w *Worker) forget(d *Device) {
	d.lively, d.inVain = false, 0
	if i := slices.Index(w.lively, d); i >= 0 {
		w.lively = slices.Delete(w.lively, i, i+1)
	}
}

// nextBusy returns the busy device whose turn it is, or nil. Who is busy is lively.
func (w *Worker) nextBusy() *Device {
	n := len(w.lively)
	for i := range n {
		at := (w.turn + 1 + i) % n
		if w.lively[at].busy {
			w.turn = at
			return w.lively[at]
		}
	}
	return nil
}

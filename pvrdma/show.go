// SPDX-License-Identifier: Apache-2.0

package pvrdma

// receiveRing is a queue from which receives were taken.
type receiveRing interface {
	device() *Device
	// giveBack gives the slots of the receives that were taken back to the guest.
	giveBack()
}

// taken notes that a receive was taken from a queue: its slot is given back when the guest is shown what was done. The
// guest's processor writes the line of the index for each receive that it posts, and would lose it for each that is taken.
func (w *Worker) taken(rq *workQueue, r receiveRing) {
	if !rq.taken {
		rq.taken = true
		w.emptied = append(w.emptied, r)
	}
}

// giveBack gives the slots of all receives back that were taken since the last time.
func (w *Worker) giveBack() {
	for i := 0; i < len(w.emptied); i++ {
		w.giveBackOf(w.emptied[i])
	}
	clear(w.emptied)
	w.emptied = w.emptied[:0]
}

// giveBackOf gives the slots of one queue back. What goes wrong is its guest's end alone.
func (w *Worker) giveBackOf(r receiveRing) {
	defer func() {
		if p := recover(); p != nil {
			w.guard(r.device(), func() { panic(p) })
		}
	}()
	r.giveBack()
}

// show shows the guests what was completed since the last time: one store of an index for all entries of a queue, because
// a line that the guest looks at has to be fetched back for each. Who sees a completion may post into its slot, so that slots
// are given back first.
func (w *Worker) show() {
	if len(w.emptied) != 0 {
		w.giveBack()
	}
	if len(w.filled) == 0 {
		return
	}
	for i := 0; i < len(w.filled); i++ { // what is told to a guest may fill others
		w.filled[i].show()
	}
	clear(w.filled)
	w.filled = w.filled[:0]
}

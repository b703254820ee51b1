// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// MemoryFault says that a guest's memory failed while an engine copied to or from it, perhaps for another guest: the
// device of the guest that owns the memory is reset. An engine's observer calls it, on a worker's thread: that of the guest
// which was at work, of which this need not be the worker. A device that is switched on later has no part in it.
func (w *Worker) MemoryFault(err *guestmem.FaultError) {
	if w.isHere() {
		w.blame(err)
		return
	}
	until := w.activations.Load()
	w.tell(func() { w.blameUntil(err, until) })
}

// blame fails the device whose memory failed, if it is one of the worker's.
func (w *Worker) blame(err error) bool { return w.blameUntil(err, w.activations.Load()) }

// blameUntil is blame for a fault that was found when the worker counted until activations.
func (w *Worker) blameUntil(err error, until uint64) bool {
	var fault *guestmem.FaultError
	if !errors.As(err, &fault) {
		return false
	}
	for _, d := range w.devices {
		if d.mem == fault.Space && d.activation <= until {
			d.fail(err)
			return true
		}
	}
	return false
}

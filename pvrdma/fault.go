// SPDX-License-Identifier: Apache-2.0

package pvrdma

import "github.com/pvrdmad/pvrdmad/guestmem"

// MemoryFault says that a guest's memory failed while an engine copied to or from it, perhaps for another guest: the
// device of the guest that owns the memory is reset. An engine's observer calls it, on a worker's thread: that of the guest
// which was at work, of which this need not be the worker.
func (w *Worker) MemoryFault(err *guestmem.FaultError) {
	if w.isHere() {
		w.blame(err)
		return
	}
	w.tell(func() { w.blame(err) })
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// vector is one interrupt of a client: where it goes, or why it has to wait.
type vector struct {
	fd      int // the client's eventfd, -1 for none
	masked  bool
	pending bool // raised, not delivered
}

// interrupts delivers a session's interrupts, and latches those that cannot be delivered yet.
//
// QEMU takes MSI-X vectors away and assigns them again, one by one, while the guest's driver sets them up, so an
// interrupt that finds no eventfd is the normal case; dropping it would leave the driver waiting.
type interrupts struct {
	mu      sync.Mutex
	vectors [NumIRQs][]vector // guarded by mu
	signal  signaller         // its write is called with mu held
}

// describe sets the numbers of vectors, before the first SET_IRQS.
func (q *interrupts) describe(counts [NumIRQs]uint32) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, n := range counts {
		if n > MaxVectors {
			return fmt.Errorf("device with %d vectors of %s, more than %d: %w", n, IRQIndex(i), MaxVectors, unix.EINVAL)
		}
		q.vectors[i] = make([]vector, n)
		for j := range q.vectors[i] {
			q.vectors[i][j].fd = -1
		}
	}
	return nil
}

// count returns the number of vectors of an index.
func (q *interrupts) count(index IRQIndex) uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return uint32(len(q.vectors[index]))
}

// trigger raises an interrupt. Any goroutine.
func (q *interrupts) trigger(index IRQIndex, n uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if index < NumIRQs && uint64(n) < uint64(len(q.vectors[index])) {
		q.raise(index, &q.vectors[index][n])
	}
}

// raise delivers an interrupt or latches it. With mu held.
func (q *interrupts) raise(index IRQIndex, v *vector) {
	v.pending = true
	q.deliver(index, v)
}

// deliver delivers a latched interrupt if that is possible now. With mu held.
func (q *interrupts) deliver(index IRQIndex, v *vector) {
	if !v.pending || v.masked || v.fd < 0 || !q.signal.write(v.fd) {
		return
	}
	v.pending = false
	// INTx is level triggered: it stays silent until the client has seen the guest's end of interrupt. This is
	// VFIO_IRQ_INFO_AUTOMASKED of linux/vfio.h.
	v.masked = index == IRQINTx
}

// takenFDs are eventfds that interrupts do not go to any more. They are closed without the lock, which callers of Trigger
// want: to close a file is as long as whoever watches it likes.
type takenFDs []int

// takeFrom takes a vector's eventfd away. With interrupts.mu held.
func (f *takenFDs) takeFrom(v *vector) {
	if v.fd >= 0 {
		*f = append(*f, v.fd)
	}
	v.fd = -1
}

// closeWith closes them. Without interrupts.mu.
func (f *takenFDs) closeWith(w *signaller) {
	for _, fd := range *f {
		w.close(fd)
	}
}

// assign gives n vectors from first the eventfds of fds, which it takes over; without fds it takes them away.
func (q *interrupts) assign(index IRQIndex, first, n uint32, fds *fdList) {
	var taken takenFDs
	defer taken.closeWith(&q.signal)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range n {
		v := &q.vectors[index][first+i]
		taken.takeFrom(v)
		if fds.n > 0 {
			v.fd = fds.take(int(i))
			q.deliver(index, v)
		}
	}
}

// disable takes all eventfds and masks of an index away. What is latched stays so: QEMU does this between two
// assignments of the same vectors.
func (q *interrupts) disable(index IRQIndex) {
	var taken takenFDs
	defer taken.closeWith(&q.signal)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.vectors[index] {
		v := &q.vectors[index][i]
		taken.takeFrom(v)
		v.masked = false
	}
}

// mask masks or unmasks a vector.
func (q *interrupts) mask(index IRQIndex, n uint32, masked bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	v := &q.vectors[index][n]
	v.masked = masked
	q.deliver(index, v)
}

// forget drops all latched interrupts: the device was reset.
func (q *interrupts) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, vs := range q.vectors {
		for i := range vs {
			vs[i].pending = false
		}
	}
}

// close takes everything away; later interrupts are ignored.
func (q *interrupts) close() {
	var taken takenFDs
	defer taken.closeWith(&q.signal)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, vs := range q.vectors {
		for j := range vs {
			taken.takeFrom(&vs[j])
		}
		q.vectors[i] = nil
	}
	q.signal.stop()
}

// checkEventFD returns a violation if an fd cannot be an eventfd, and makes it non-blocking. It is told by its file
// system, which eventfds share with a few other kinds; writing to those fails without harm.
func checkEventFD(fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.ANON_INODE_FS_MAGIC {
		return refuse(FaultFDs, unix.EINVAL, "interrupt to a file that is no eventfd")
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("make an eventfd non-blocking: %w", err)
	}
	return nil
}

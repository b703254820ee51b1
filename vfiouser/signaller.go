// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// blockedTick is how often a session whose interrupts are being delivered is looked at, and so half of the longest
// time that a client can hold a caller of Trigger up.
const blockedTick = 10 * time.Millisecond

// maxDrains bounds the attempts of one look to free a blocked write.
const maxDrains = 1000

// signaller writes eventfds that are not ours alone.
//
// An eventfd's O_NONBLOCK belongs to the file, which the client has too. A client that clears it and fills the
// counter up makes the next write block, and with it a thread that serves other guests. There is no eventfd
// write that is non-blocking by itself, so a timer looks after the writes while there are any: if one has not come
// back within a tick and the counter is full, it empties the counter, which frees the write, and reports the
// client. An honest client's counter is never full: that takes 2^64-1 interrupts that were not read.
type signaller struct {
	blocked func() // reports the client
	timer   *time.Timer
	one     [8]byte // what is written: the number 1

	// seq is odd while a write is under way. Writer: the holder of interrupts.mu.
	seq atomic.Uint64
	// writing is the fd of that write. Writer: the same.
	writing atomic.Int64
	// armed: the timer is running. Writers: the holder of interrupts.mu sets it, the timer clears it.
	armed atomic.Bool
	// broken: the client was reported; nothing is written any more. Writer: the timer.
	broken atomic.Bool

	mu   sync.Mutex // held by whoever closes an fd, and by the timer while it looks at one
	seen uint64     // seq at the last look; guarded by mu
}

// prepare makes a signaller ready; blocked is called from a timer.
func (w *signaller) prepare(blocked func()) {
	binary.NativeEndian.PutUint64(w.one[:], 1)
	w.blocked = blocked
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
}

// write adds 1 to an eventfd. It returns false if nothing is to be written any more. An eventfd that is full is
// signalled already, so there are no errors to handle; what is no eventfd at all is the client's loss.
func (w *signaller) write(fd int) bool {
	if w.broken.Load() {
		return false
	}
	w.writing.Store(int64(fd))
	w.seq.Add(1)
	if !w.armed.Load() {
		w.armed.Store(true)
		w.timer.Reset(blockedTick)
	}
	_, _ = unix.Write(fd, w.one[:])
	w.seq.Add(1)
	return true
}

// close closes an fd that was written to; -1 is none.
func (w *signaller) close(fd int) {
	if fd < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	closeFD(fd)
}

// stop ends the timer.
func (w *signaller) stop() { w.timer.Stop() }

// look is the timer's function.
func (w *signaller) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	seq := w.seq.Load()
	moved := seq != w.seen
	w.seen = seq
	if !moved && seq%2 == 1 && w.full() {
		w.broken.Store(true)
		w.drain(seq)
		w.blocked()
	}
	if moved || seq%2 == 1 {
		w.timer.Reset(blockedTick)
		return
	}
	w.armed.Store(false)
	// A write that began before that saw the timer armed; one that begins later arms it itself.
	if w.seq.Load() != seq && w.armed.CompareAndSwap(false, true) {
		w.timer.Reset(blockedTick)
	}
}

// full says whether the eventfd that is being written has a full counter. With mu held, so it is not closed.
func (w *signaller) full() bool {
	fds := []unix.PollFd{{Fd: int32(w.writing.Load()), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 0
}

// drain empties the counter until the write seq is over. With mu held.
func (w *signaller) drain(seq uint64) {
	var p [8]byte
	fd := int(w.writing.Load())
	for range maxDrains {
		if w.seq.Load() != seq {
			return
		}
		_, _ = unix.Preadv2(fd, [][]byte{p[:]}, -1, unix.RWF_NOWAIT)
	}
}

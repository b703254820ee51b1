// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"golang.org/x/sys/unix"
)

// ErrPoll says that a completion queue cannot be polled: its indices are not valid, or the next completion is of a
// queue pair that the guest does not know. The provider then returns an error for ever.
var ErrPoll = errors.New("the completion queue cannot be polled")

// maxEvents is how many events of a queue may wait for the program.
const maxEvents = 4096

// WC is a completion.
type WC struct {
	WRID                                                  uint64
	QP                                                    *QP
	Status, Opcode, ByteLen, Imm, SrcQP, Flags, VendorErr uint32
	PKeyIndex                                             uint16
	NetworkType                                           uint8
}

// CQ is a completion queue.
type CQ struct {
	Ctx    *Context
	Handle uint32
	// N is how many completions it holds.
	N uint32

	mem    *object
	ring   driver.Ring
	events chan struct{}

	mu sync.Mutex // the provider's lock of the queue
}

// CreateCQ makes a completion queue of at least n entries.
func (c *Context) CreateCQ(n uint32) (*CQ, error) {
	n = roundUp(n)
	mem, err := c.newObject(ram.PageSize + int(n)*c.f.cqeSize)
	if err != nil {
		return nil, err
	}
	q := &CQ{Ctx: c, mem: mem, events: make(chan struct{}, maxEvents)}
	q.ring = driver.NewRing(c.l, mem.bufs[0].Bytes(), "rx")
	q.Handle, q.N, err = c.Dev.CreateCQ(driver.CQParams{
		PDir: mem.dir.Addr(), Context: c.Handle, CQE: n, Chunks: uint32(mem.pages()),
	})
	if err != nil {
		return nil, errors.Join(err, mem.free())
	}
	if q.N != n {
		return nil, fmt.Errorf("create a completion queue of %d entries: the device says %d: %w", n, q.N, unix.EPROTO)
	}
	c.Dev.SetCQHandler(q.Handle, q.Notify)
	return q, nil
}

// Notify is what the driver calls for an event of the queue: the program gets one more.
func (q *CQ) Notify() {
	select {
	case q.events <- struct{}{}:
	default: // the program has more events than it can ever read
	}
}

// Destroy ends the queue.
func (q *CQ) Destroy() error {
	err := q.Ctx.Dev.DestroyCQ(q.Handle)
	q.Ctx.Dev.SetCQHandler(q.Handle, nil)
	return errors.Join(err, q.mem.free())
}

// Ring returns the queue's indices, for tests that look at them or spoil them.
func (q *CQ) Ring() driver.Ring { return q.ring }

// Memory is what the queue shares with the device.
func (q *CQ) Memory() []byte { return q.mem.bufs[0].Bytes() }

// Events delivers one element for each event of the queue.
func (q *CQ) Events() <-chan struct{} { return q.events }

func (q *CQ) entry(slot uint32) []byte {
	at := ram.PageSize + int(slot)*q.Ctx.f.cqeSize
	return q.mem.bufs[0].Bytes()[at : at+q.Ctx.f.cqeSize]
}

// Poll takes one completion, as ibv_poll_cq with room for one does.
func (q *CQ) Poll() (wc WC, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	v, slot := q.ring.HasData(q.N)
	if v == driver.No { // tell the device that it was polled, and look once more
		if err := q.Ctx.Ring(q.Ctx.f.bell.cq, q.Handle|q.Ctx.f.bell.poll); err != nil {
			return WC{}, false, err
		}
		v, slot = q.ring.HasData(q.N)
	}
	switch v {
	case driver.No:
		return WC{}, false, nil
	case driver.Invalid:
		return WC{}, false, fmt.Errorf("queue %d has indices %#x and %#x of %d: %w", q.Handle, q.ring.Prod(),
			q.ring.Cons(), q.N, ErrPoll)
	}
	e := q.entry(slot)
	f := &q.Ctx.f.cqe
	qp := q.Ctx.qp(f.qp.Get(e))
	if qp == nil {
		return WC{}, false, fmt.Errorf("queue %d has a completion of queue pair %#x, which is not there: %w", q.Handle,
			f.qp.Get(e), ErrPoll)
	}
	wc = WC{
		WRID: f.wrID.Get(e), QP: qp, Status: uint32(f.status.Get(e)), Opcode: uint32(f.opcode.Get(e)),
		ByteLen: uint32(f.byteLen.Get(e)), Imm: uint32(f.imm.Get(e)), SrcQP: uint32(f.srcQP.Get(e)),
		Flags: uint32(f.flags.Get(e)), VendorErr: uint32(f.vendorErr.Get(e)),
		PKeyIndex: uint16(f.pkeyIndex.Get(e)), NetworkType: uint8(f.networkType.Get(e)),
	}
	q.ring.Consume(q.N)
	return wc, true, nil
}

// ReqNotify asks for one event at the next completion, or at the next solicited or failed one.
func (q *CQ) ReqNotify(solicitedOnly bool) error {
	cmd := q.Ctx.f.bell.arm
	if solicitedOnly {
		cmd = q.Ctx.f.bell.armSol
	}
	return q.Ctx.Ring(q.Ctx.f.bell.cq, q.Handle|cmd)
}

// clean takes the completions of a queue pair out, as the provider does when the queue pair is destroyed or reset: the
// others move towards the producer, the consumer's index moves on, the producer's is never written.
func (q *CQ) clean(handle uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	v, head := q.ring.HasData(q.N)
	if v != driver.Yes {
		return
	}
	tail := q.ring.Prod() & (q.N - 1)
	items := int(tail) - int(head)
	if items <= 0 {
		items += int(q.N)
	}
	from := int(tail) - 1
	to := from
	kept := 0
	for range items {
		e := q.entry(uint32(from) & (q.N - 1))
		if uint32(q.Ctx.f.cqe.qp.Get(e))&handleBits != handle&handleBits {
			if from != to {
				copy(q.entry(uint32(to)&(q.N-1)), e)
			}
			to--
			kept++
		}
		from--
	}
	for range items - kept {
		q.ring.Consume(q.N)
	}
}

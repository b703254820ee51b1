// SPDX-License-Identifier: Apache-2.0

package testguest

import (
	"fmt"
	"sync"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"golang.org/x/sys/unix"
)

// Flow is messages that go from one endpoint to another, one after the other, until they are told to stop or one goes
// wrong. Its methods do not end the test, so that it can run beside it.
type Flow struct {
	From, To *Endpoint
	// Size is a message's length in bytes, Pause the time between two.
	Size  int
	Pause time.Duration

	stop chan struct{}
	wg   sync.WaitGroup
	// count, longest and err are written by the flow and read after it has ended.
	count   uint64
	longest time.Duration
	err     error
}

// StartFlow starts messages. The endpoints are connected and not used by anybody else.
func StartFlow(from, to *Endpoint, size int, pause time.Duration) *Flow {
	f := &Flow{From: from, To: to, Size: size, Pause: pause, stop: make(chan struct{})}
	f.wg.Go(func() {
		for f.err == nil {
			select {
			case <-f.stop:
				return
			case <-time.After(f.Pause):
			}
			began := time.Now()
			if f.err = f.message(); f.err == nil {
				f.count++
			}
			f.longest = max(f.longest, time.Since(began))
		}
	})
	return f
}

// Stop ends the flow and returns how many messages arrived whole, and what went wrong.
func (f *Flow) Stop() (uint64, error) {
	close(f.stop)
	f.wg.Wait()
	return f.count, f.err
}

// Longest is the time that the slowest message took. The flow has been stopped.
func (f *Flow) Longest() time.Duration { return f.longest }

// message sends the next message by SEND and checks its bytes.
func (f *Flow) message() error {
	p := Pattern{Seed: uint64(f.From.QP.QPN), Iteration: f.count}
	p.Fill(f.From.MR.Mem[:f.Size])
	into := f.To.MR.Mem[f.Size : 2*f.Size]
	clear(into)
	if err := f.To.QP.PostRecv(verbs.RecvWR{WRID: f.count, SGE: []verbs.SGE{f.To.MR.SGE(f.Size, f.Size)}}); err != nil {
		return err
	}
	if err := f.From.QP.PostSend(f.From.Op("SEND", Address{}, 0, f.Size)); err != nil {
		return err
	}
	for _, cq := range []*verbs.CQ{f.From.SendCQ, f.To.RecvCQ} {
		wc, err := cq.Wait(f.From.Shape.Mode, Patience)
		if err != nil {
			return fmt.Errorf("message %d: %w", f.count, err)
		}
		if wc.Status != 0 {
			return fmt.Errorf("message %d ends with %s: %w", f.count, f.From.P.G.L.ConstName("PVRDMA_WC_", wc.Status),
				unix.EIO)
		}
	}
	if err := p.Check(into); err != nil {
		return fmt.Errorf("message %d: %w", f.count, err)
	}
	return nil
}

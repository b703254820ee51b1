// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// churned is one vector whose eventfds come and go while its interrupt is raised. Whoever reads an eventfd adds what it
// had to heard, so that every delivery is counted once.
type churned struct {
	t       *testing.T
	session *Session
	vector  uint32
	raised  atomic.Int64 // writer: the raiser
	heard   atomic.Int64

	mu      sync.Mutex
	current int   // the assigned eventfd, -1 for none; guarded by mu
	retired []int // those that were assigned before; guarded by mu
}

// listen reads the assigned eventfd.
func (v *churned) listen() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current >= 0 {
		v.heard.Add(int64(readEvents(v.t, v.current)))
	}
}

// raise raises the interrupt until stop, each time a while after the last one was heard, to see whether more
// is heard than was raised.
func (v *churned) raise(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		v.raised.Add(1)
		v.session.Trigger(IRQMSIX, v.vector)
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
			v.listen()
			heard, raised := v.heard.Load(), v.raised.Load()
			if heard > raised {
				v.t.Errorf("vector %d: heard %d, raised %d", v.vector, heard, raised)
				return
			}
			if heard == raised {
				break
			}
			if time.Now().After(deadline) {
				v.t.Errorf("vector %d: heard %d, raised %d: one is lost", v.vector, heard, raised)
				return
			}
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// replaced says that the server has answered an assignment of fd, -1 for none: from here on the old eventfd is silent.
func (v *churned) replaced(fd int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current >= 0 {
		v.heard.Add(int64(readEvents(v.t, v.current)))
		v.retired = append(v.retired, v.current)
	}
	v.current = fd
}

// settle waits until what was raised by now is heard. The vector is assigned and unmasked, so nothing more is due of the
// client.
func (v *churned) settle() {
	v.t.Helper()
	raised := v.raised.Load()
	eventually(v.t, "the latched interrupt is delivered", func() bool {
		v.listen()
		return v.heard.Load() >= raised
	})
}

// churn has the client change everything about the vectors, and leaves them assigned and unmasked at the end of each
// round.
func churn(t *testing.T, c *client, vectors []*churned) {
	n := uint32(len(vectors))
	for i, v := range vectors {
		vector := uint32(i)
		c.must(irqFrame(assignFlags, IRQMSIX, vector, 1))
		v.replaced(-1)
		c.assignTo(t, v)
		c.must(irqFrame(irqDataNone|irqActionMask, IRQMSIX, vector, 1))
		c.assignTo(t, v) // while it is masked
		c.must(irqFrame(irqDataNone|irqActionUnmask, IRQMSIX, vector, 1))
		v.settle()
	}
	c.must(irqFrame(irqDataBool|irqActionMask, IRQMSIX, 0, n, 1, 0, 1))
	c.must(irqFrame(noneTrigger, IRQMSIX, 0, 0)) // disables, and unmasks
	for _, v := range vectors {
		v.replaced(-1)
		c.assignTo(t, v)
		v.settle()
	}
}

// assignTo assigns a new eventfd to a vector.
func (c *client) assignTo(t *testing.T, v *churned) {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	c.must(irqFrame(assignFlags, IRQMSIX, v.vector, 1).with(fd))
	v.replaced(fd)
}

// forget closes the eventfds that were replaced. All that was delivered to them was read by then.
func (v *churned) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, fd := range v.retired {
		wantEvents(v.t, fd, 0)
		_ = unix.Close(fd)
	}
	v.retired = nil
}

func TestEveryInterruptIsDeliveredOnceWhileEventFDsAndMasksChange(t *testing.T) {
	const rounds = 100
	r := start(t, nil, nil)
	c := r.client()
	vectors := make([]*churned, 3)
	var raisers sync.WaitGroup
	stop := make(chan struct{})
	for i := range vectors {
		v := &churned{t: t, session: r.session(), vector: uint32(i), current: -1}
		vectors[i] = v
		raisers.Go(func() { v.raise(stop) })
	}

	for range rounds {
		churn(t, c, vectors)
		for _, v := range vectors {
			v.forget()
		}
	}
	close(stop)
	raisers.Wait()

	for _, v := range vectors {
		v.listen()
		if heard, raised := v.heard.Load(), v.raised.Load(); heard != raised || heard < 10 {
			t.Errorf("vector %d: heard %d, raised %d", v.vector, heard, raised)
		}
		v.replaced(-1)
		v.forget()
	}
}

// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"golang.org/x/sys/unix"
)

const (
	// wakeUpsEnv says how many completions are waited for in each doorbell mode.
	wakeUpsEnv = "PVRDMAD_WAKEUPS"
	// sleepers is how many programs wait at the same time, half of them in each guest.
	sleepers = 4
	// maxDawdle is the longest time that a program lets pass between two steps, some of the time: from shorter to longer
	// than a message takes, a worker's first sleep, and a grace time.
	maxDawdle = 60 * time.Microsecond
)

// defaultWakeUps are 10^5 together: where every doorbell is a message, they take longer.
var defaultWakeUps = map[string]int{"poll": 80_000, "trap": 20_000}

var errLost = errors.New("the queue holds a completion, was armed before, and its event does not come")

func (d *daemon) wakeUps() int {
	d.t.Helper()
	s := os.Getenv(wakeUpsEnv)
	if s == "" {
		return defaultWakeUps[d.mode]
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		d.t.Fatalf("%s is %q, want a number of completions", wakeUpsEnv, s)
	}
	return n
}

// sleeper is a program that sends messages to itself one at a time and waits for each as ibv_req_notify_cq(3) says: arm,
// look once more, sleep.
type sleeper struct {
	e    *testguest.Endpoint
	rand *rand.Rand
	// patience is how long an event may take.
	patience time.Duration
	// blind says that the queue is always armed first and looked at only after its event.
	blind bool
	// early, narrow and slept count completions that were seen before the queue was armed, between the arm and the sleep,
	// and after an event.
	early, narrow, slept int
}

// dawdle lets some time pass, mostly none.
func (s *sleeper) dawdle() {
	if s.rand.IntN(4) != 0 {
		return
	}
	end := time.Now().Add(time.Duration(s.rand.Int64N(int64(maxDawdle))))
	for time.Now().Before(end) { // a sleep would not be as exact
	}
}

// one sends a message and waits for its completion.
func (s *sleeper) one() error {
	wr := s.e.Op("RDMA_WRITE", s.e.Address(), 0, 8)
	if s.blind || s.rand.IntN(2) == 0 {
		return s.armFirst(wr)
	}
	if err := s.e.QP.PostSend(wr); err != nil {
		return err
	}
	s.dawdle()
	if done, err := s.poll(wr.WRID, &s.early); done || err != nil {
		return err
	}
	return s.sleep(wr.WRID)
}

// armFirst arms the queue before there is anything to wait for, and looks at it after the event only.
func (s *sleeper) armFirst(wr verbs.SendWR) error {
	if err := s.e.SendCQ.ReqNotify(false); err != nil {
		return err
	}
	s.dawdle()
	if err := s.e.QP.PostSend(wr); err != nil {
		return err
	}
	if done, err := s.event(wr.WRID); done || err != nil {
		return err
	}
	return s.sleep(wr.WRID) // it was the event of an arm before
}

// sleep arms the queue, looks once more and sleeps, until the completion is there.
func (s *sleeper) sleep(id uint64) error {
	for {
		if err := s.e.SendCQ.ReqNotify(false); err != nil {
			return err
		}
		s.dawdle()
		if done, err := s.poll(id, &s.narrow); done || err != nil {
			return err
		}
		if done, err := s.event(id); done || err != nil {
			return err
		}
	}
}

// event waits for an event and looks at the queue.
func (s *sleeper) event(id uint64) (done bool, err error) {
	if err := s.e.SendCQ.WaitEvent(s.patience); err != nil {
		if done, _ := s.poll(id, new(int)); done {
			return false, fmt.Errorf("work request %d: %w", id, errLost)
		}
		return false, err
	}
	return s.poll(id, &s.slept)
}

func (s *sleeper) poll(id uint64, count *int) (bool, error) {
	wc, ok, err := s.e.SendCQ.Poll()
	if !ok || err != nil {
		return false, err
	}
	if wc.WRID != id || wc.Status != 0 {
		return false, fmt.Errorf("completion of %d with status %d, want %d: %w", wc.WRID, wc.Status, id, unix.EIO)
	}
	*count++
	return true, nil
}

// sleepers starts programs of both guests.
func (d *daemon) sleepers(n int) []*sleeper {
	d.t.Helper()
	guests := []*testguest.Guest{d.guest("a"), d.guest("b")}
	var all []*sleeper
	for i := range n {
		e := guests[i%2].Open().Endpoint(testguest.Shape{Depth: 4})
		e.ConnectTo(e.Address())
		all = append(all, &sleeper{e: e, rand: rand.New(rand.NewPCG(1, uint64(i))), patience: testguest.Patience})
	}
	return all
}

func TestNoWakeUpIsLostInManyEventDrivenCompletions(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.wakeUps()
		all := d.sleepers(sleepers)
		began := time.Now()
		var wg sync.WaitGroup
		for _, s := range all {
			wg.Go(func() {
				for i := range n / sleepers {
					if err := s.one(); err != nil {
						t.Errorf("completion %d of queue %d: %v", i, s.e.SendCQ.Handle, err)
						return
					}
				}
			})
		}
		wg.Wait()
		var early, narrow, slept int
		for _, s := range all {
			early, narrow, slept = early+s.early, narrow+s.narrow, slept+s.slept
		}
		t.Logf("%d completions in %v: %d before the arm, %d between arm and sleep, %d after an event",
			early+narrow+slept, time.Since(began).Round(time.Millisecond), early, narrow, slept)
		if !t.Failed() && (slept < n/4 || narrow < n/1000) {
			t.Errorf("of %d completions %d came between arm and sleep and %d by an event: that proves little", n, narrow, slept)
		}
	})
}

// The test above is worth something only if it finds one event that is lost among many, and soon.
func TestOneLostWakeUpIsFoundAndNobodyHangs(t *testing.T) {
	const lost, patience = 500, 2 * time.Second // more than a busy machine takes for an event
	eachMode(t, func(t *testing.T, d *daemon) {
		s := d.sleepers(1)[0]
		s.blind, s.patience = true, patience
		events := 0
		s.e.P.G.Dev.SetCQHandler(s.e.SendCQ.Handle, func() {
			if events++; events != lost {
				s.e.SendCQ.Notify()
			}
		})
		n := 0
		var began time.Time
		var err error
		for err == nil && n < 2*lost {
			began = time.Now()
			err = s.one()
			n++
		}
		if !errors.Is(err, errLost) {
			t.Fatalf("event %d was lost, and %d completions later the error is %v", lost, n, err)
		}
		if took := time.Since(began); n != lost || took > 2*patience+d.soon() {
			t.Errorf("event %d was lost, found at completion %d after %v", lost, n, took)
		}
	})
}

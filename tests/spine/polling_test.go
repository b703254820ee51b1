// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"fmt"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"golang.org/x/sys/unix"
)

const (
	// polledMessages are waited for by polling, 1 in interruptible of which may interrupt the guest.
	polledMessages, interruptible = 20_000, 1000
	// attention is how long a program may look away before a completion that it has not taken interrupts it: the device's
	// grace time, less what two clocks differ.
	attention = 19 * time.Microsecond
)

// poller is a program that polls for its completions and never sleeps. The machine may take its processor away: then it
// looks away, and whoever looks away may be interrupted.
type poller struct {
	e    *testguest.Endpoint
	last time.Time
	// away counts how often it looked away.
	away int
}

func (p *poller) look() {
	now := time.Now()
	if now.Sub(p.last) > attention {
		p.away++
	}
	p.last = now
}

// message sends a message to itself and polls until it is complete.
func (p *poller) message(bytes int) error {
	wr := p.e.Op("RDMA_WRITE", p.e.Address(), 0, bytes)
	p.last = time.Now()
	if err := p.e.QP.PostSend(wr); err != nil {
		return err
	}
	for deadline := p.last.Add(testguest.Patience); p.last.Before(deadline); {
		wc, ok, err := p.e.SendCQ.Poll()
		p.look()
		if err != nil {
			return err
		}
		if ok && (wc.WRID != wr.WRID || wc.Status != 0) {
			return fmt.Errorf("completion of %d with status %d, want %d: %w", wc.WRID, wc.Status, wr.WRID, unix.EIO)
		}
		if ok {
			return nil
		}
	}
	return fmt.Errorf("no completion of %d within %v: %w", wr.WRID, testguest.Patience, unix.ETIMEDOUT)
}

// interrupts sends up to n messages, fewer on a machine that is slow today, and returns how many, and how often the guest was
// interrupted meanwhile.
func (p *poller) interrupts(t *testing.T, n, bytes int) (sent int, interrupts uint64) {
	t.Helper()
	before, _ := p.e.P.G.Dev.EventStats()
	for began := time.Now(); sent < n && (sent < n/20 || time.Since(began) < 10*time.Second); sent++ {
		if err := p.message(bytes); err != nil {
			t.Fatalf("message %d: %v", sent, err)
		}
	}
	after, err := p.e.P.G.Dev.EventStats()
	if err != nil {
		t.Error(err)
	}
	return sent, after.CQEvents - before.CQEvents
}

// A program's polls store a word into its doorbell page that might be an arm, so that the device cannot know that nobody
// sleeps. It may not interrupt the guest for that.
func TestAProgramThatPollsIsHardlyInterrupted(t *testing.T) {
	d := startDaemon(t, "poll")
	program := d.guest("a").Open()
	for bytes, n := range map[int]int{8: polledMessages, 4096: polledMessages, 1 << 20: polledMessages / 10} {
		t.Run(fmt.Sprintf("%d bytes", bytes), func(t *testing.T) {
			e := program.Endpoint(testguest.Shape{Bytes: bytes})
			defer e.Destroy()
			e.ConnectTo(e.Address())
			p := &poller{e: e}
			n, got := p.interrupts(t, n, bytes)
			t.Logf("%d messages, %d interrupts, looked away %d times", n, got, p.away)
			if most := uint64(n/interruptible + p.away); got > most {
				t.Errorf("%d interrupts for %d messages of a program that looked away %d times, want %d at most", got, n, p.away,
					most)
			}
		})
	}
}

func TestAProgramThatPollsByMessagesIsNeverInterrupted(t *testing.T) {
	e := startDaemon(t, "trap").guest("a").Open().Endpoint(testguest.Shape{})
	e.ConnectTo(e.Address())
	p := &poller{e: e}
	if _, got := p.interrupts(t, 500, 8); got != 0 {
		t.Errorf("%d interrupts of a program that never armed its queue", got)
	}
}

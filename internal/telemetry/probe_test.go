// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestAProbeOfAStuckThreadAsksOnceAndAnswersInTime(t *testing.T) {
	release := make(chan struct{})
	var asked atomic.Int32
	first := make(chan struct{}, 100)
	p := NewProbe("the worker", func() {
		asked.Add(1)
		first <- struct{}{}
		<-release
	})
	for range 10 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		err := p.Check(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the worker") {
			t.Fatalf("error %v, want a deadline that names the worker", err)
		}
	}
	<-first // it may not have had its turn until now
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
	close(release)
	for range 2 {
		if err := p.Check(context.Background()); err != nil {
			t.Errorf("a thread that answers: %v", err)
		}
	}
	if n := asked.Load(); n < 2 {
		t.Errorf("asked %d times, want again after the answer", n)
	}
}

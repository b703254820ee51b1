// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"sync"
	"time"
)

// bucket lets a burst of lines through and then so many a second. It counts what it holds back.
type bucket struct {
	burst, perSecond float64

	mu         sync.Mutex
	tokens     float64   // guarded by mu
	last       time.Time // guarded by mu
	suppressed uint64    // guarded by mu: held back since the last line that went through
}

func newBucket(burst, perSecond float64) *bucket {
	return &bucket{burst: burst, perSecond: perSecond, tokens: burst}
}

// take reports whether a line may be written now, and if so how many were held back before it.
func (b *bucket) take(now time.Time) (ok bool, suppressed uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.last.IsZero() {
		// The clock is monotonic; a negative difference can only come from a caller that read it before another one.
		b.tokens = min(b.burst, b.tokens+max(0, now.Sub(b.last).Seconds())*b.perSecond)
	}
	if now.After(b.last) {
		b.last = now
	}
	if b.tokens < 1 {
		b.suppressed++
		return false, 0
	}
	b.tokens--
	suppressed, b.suppressed = b.suppressed, 0
	return true, suppressed
}

// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"sync/atomic"
	"time"
)

// Clock is monotonic time in nanoseconds.
type Clock interface {
	Now() int64
	// Until returns when it is t or later.
	Until(t int64)
}

// FakeClock stands still until somebody waits.
type FakeClock struct{ now atomic.Int64 }

// NewFakeClock returns a clock that does not stand at 0, which stands for "never" elsewhere.
func NewFakeClock() *FakeClock {
	c := &FakeClock{}
	c.now.Store(int64(time.Hour))
	return c
}

// Now returns the time.
func (c *FakeClock) Now() int64 { return c.now.Load() }

// Until moves the time to t. Several owners may wait at once: it never goes back.
func (c *FakeClock) Until(t int64) {
	for now := c.now.Load(); t > now && !c.now.CompareAndSwap(now, t); {
		now = c.now.Load()
	}
}

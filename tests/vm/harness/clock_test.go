// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/agentproto"
)

func TestAClockThatCountsMoreThanHasPassedRunsAhead(t *testing.T) {
	for name, c := range map[string]struct {
		uptime float64
		took   time.Duration
		want   bool
	}{
		"a quiet machine":            {3, 3500 * time.Millisecond, false},
		"a loaded machine":           {20, 40 * time.Second, false},
		"connected a little late":    {6, 2 * time.Second, false},
		"twelve times too fast":      {70, 13 * time.Second, true},
		"fast, and just a bit of it": {15, 9 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &boot{hello: agentproto.Hello{Uptime: c.uptime}, took: c.took}

			if got := b.clockRunsAhead(); got != c.want {
				t.Errorf("uptime %v s after %v: runs ahead %v, want %v", c.uptime, c.took, got, c.want)
			}
		})
	}
}

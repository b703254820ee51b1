// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

func TestARegionHoldsNoRangeThatWraps(t *testing.T) {
	const top = uint64(math.MaxUint64)
	low, high := mr{start: 0, length: 4096, offset: 5}, mr{start: top - 4096, length: 4096}
	for name, c := range map[string]struct {
		m       mr
		addr, n uint64
	}{
		"from the last addresses to the first":        {low, top - 7, 16},
		"from the last address to itself":             {low, top, 1},
		"all addresses there are":                     {low, 0, top},
		"more than all from the middle on":            {low, 2048, top - 1000},
		"from the end of the last region":             {high, top - 8, 16},
		"from the begin of the last region":           {high, top - 4096, 8192},
		"the first addresses, and the last region":    {high, 0, 8},
		"so many that it ends where the region ends":  {high, top - 4096, top},
		"one byte behind, and back to the same place": {low, 4097, top},
	} {
		if at, ok := c.m.within(c.addr, c.n); ok {
			t.Errorf("%s: %#x+%#x is found in %#x+%#x, at %#x", name, c.addr, c.n, c.m.start, c.m.length, at)
		}
	}
	for _, c := range []struct {
		m           mr
		addr, n, at uint64
	}{{low, 4095, 1, 4100}, {low, 0, 4096, 5}, {low, 4096, 0, 4101}, {high, top - 4096, 4096, 0}, {high, top - 1, 1, 4095}} {
		if at, ok := c.m.within(c.addr, c.n); !ok || at != c.at {
			t.Errorf("%#x+%#x in %#x+%#x: %#x, %t, want %#x", c.addr, c.n, c.m.start, c.m.length, at, ok, c.at)
		}
	}
}

// An address number that nothing is bound to is what a guest's own mistake in its network looks like from here: who reads the
// daemon's log must see which it is.
func TestAModifyThatIsRefusedForItsAddressNamesIt(t *testing.T) {
	p := newPatient(t, hostverbs.QPTypeRC)
	p.walk(hostverbs.StateInit)
	required, _, _ := hostverbs.Transition(hostverbs.QPTypeRC, hostverbs.StateInit, hostverbs.StateRTR)
	for _, number := range []uint8{1, 3} {
		attr := goodAttr(hostverbs.StateInit, hostverbs.StateRTR)
		attr.AHAttr.SGIDIndex = number
		err := p.q.Modify(&attr, required|hostverbs.QPStateMask)
		if err == nil {
			t.Fatalf("address number %d is taken", number)
		}
		for _, name := range []string{"patient", fmt.Sprintf("QP %#x", p.q.num), "RTR", fmt.Sprintf("number %d", number)} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("address number %d: the error is %q, want it to name %q", number, err, name)
			}
		}
	}
}

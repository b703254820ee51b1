// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

func TestTwoGuests(t *testing.T) {
	a, b := bootPair(t)

	t.Run("reach each other by their NICs", func(t *testing.T) { reachEachOther(t, a, b) })
	for _, guest := range []*harness.Guest{a, b} {
		output(t, guest, 20*time.Second, rxeUp)
	}
	t.Run("exchange right data over software RoCE", func(t *testing.T) { pvcheckPasses(t, a, b) })
	t.Run("notice a planted wrong byte", func(t *testing.T) { pvcheckFails(t, a, b) })
	t.Run("reach each other after a reset", func(t *testing.T) { reachAfterReset(t, a, b) })
	t.Run("tell a killed peer from wrong data", func(t *testing.T) { pvcheckLosesPeer(t, a, b) })
}

func reachEachOther(t *testing.T, a, b *harness.Guest) {
	output(t, a, 20*time.Second, fmt.Sprintf("ping -c 3 -i 0.2 -W 30 %s", harness.Address(2)))
	output(t, b, 20*time.Second, fmt.Sprintf("ping -c 3 -i 0.2 -W 30 -s 1400 %s", harness.Address(1)))

	seen := output(t, a, 5*time.Second, "ip neigh show dev eth0")
	if !strings.Contains(seen, harness.MAC(2)) {
		t.Errorf("neighbours of the first guest: %q, want the second's MAC %s", seen, harness.MAC(2))
	}
}

func reachAfterReset(t *testing.T, a, b *harness.Guest) {
	if err := b.Reset(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}

	output(t, a, 20*time.Second, fmt.Sprintf("ping -c 1 -W 30 %s", harness.Address(2)))
	output(t, b, 20*time.Second, rxeUp)
}

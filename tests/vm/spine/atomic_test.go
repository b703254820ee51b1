// SPDX-License-Identifier: Apache-2.0

//go:build vm

package spine

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
)

// TestAtomicsAreAtomicTowardsTheGuestsProcessors has both processors of a guest and the other guest's atomic operations add
// to one word. The guests need two processors: for a machine with one, emulation leaves out what makes an instruction
// atomic, and this test fails.
func TestAtomicsAreAtomicTowardsTheGuestsProcessors(t *testing.T) {
	w := makeWorld(t, bed.Options{CPUs: 2})
	w.LoadDrivers(t)
	w.pvcheck(t, "--counter -n 5000")
	w.pvcheck(t, "--counter -n 500 -q 1")
	w.pvcheck(t, "--counter -n 2000 -e")
	w.CheckKernelLogs(t)
	w.CheckDaemon(t)
}

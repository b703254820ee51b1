// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/hostverbs/verbstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheEngineKeepsTheContract(t *testing.T) { keepsTheContract(t, 1) }

func TestTheEngineKeepsTheContractBetweenOwners(t *testing.T) { keepsTheContract(t, 2) }

// keepsTheContract runs the contract on fresh engines with clocks that the tests move.
func keepsTheContract(t *testing.T, owners int) {
	verbstest.Run(t, func(testing.TB) verbstest.Env {
		return verbstest.Env{Provider: soft.New(nil), Clock: verbstest.NewFakeClock(), LatePercent: 5, Owners: owners}
	})
}

// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/hostverbs/verbstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a fresh engine with a clock that the test moves.
func open(testing.TB) verbstest.Env {
	return verbstest.Env{Provider: soft.New(nil), Clock: verbstest.NewFakeClock(), LatePercent: 5}
}

func TestTheEngineKeepsTheContract(t *testing.T) {
	verbstest.Run(t, open)
}

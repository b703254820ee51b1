// SPDX-License-Identifier: Apache-2.0

//go:build vm

package spine

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// aAndB are the two guests of a world: guest 0 serves.
var aAndB = stage.Pair{Server: 0, Client: 1}

// pvcheck runs the payload check between the guests.
func (w *world) pvcheck(t *testing.T, options string) {
	t.Helper()
	w.Pvcheck(t, aAndB, options)
}

// pingpong runs ibv_rc_pingpong between the guests.
func (w *world) pingpong(t *testing.T, options string) {
	t.Helper()
	w.Pingpong(t, aAndB, options)
}

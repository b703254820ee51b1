// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"testing"
)

func TestAGuestBootsBringsUpQP1AndLeaves(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		g := d.guest("a")
		if g.GSI.QP.QPN != 1 {
			t.Errorf("QP 1 has number %d", g.GSI.QP.QPN)
		}
		g.Stop()
		d.alive()
	})
}

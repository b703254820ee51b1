// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// Whether anybody gets it is another matter: the sender's management layer needs its completion.
func TestAManagementDatagramCompletesAtItsSender(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.guest("a"), d.guest("b")
		for name, gid := range map[string][16]byte{
			"to a guest, link-local": b.GIDs[0], "to a guest, IPv4": b.GIDs[1], "to itself": a.GIDs[0],
			"to a GID that nobody has": {0: 0xfe, 1: 0x80, 15: 0x77},
		} {
			t.Run(name, func(t *testing.T) {
				path := verbs.Path{DGID: gid, DMAC: b.MAC()}
				for range 3 {
					if err := a.GSI.Send(path, make([]byte, 256), testguest.Patience); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// Two datagrams with one destination may come from two addresses: what leads to a destination is not remembered by it alone.
func TestADatagramGoesFromTheAddressThatItNames(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.datagrams("a", verbs.Polled), d.datagrams("b", verbs.Polled)
		g := a.P.G
		second := g.GIDs[1]
		second[15] ^= 0x40
		if err := g.Dev.CreateBind(2, second, uint8(g.Dev.Caps().Get32("gid_types"))); err != nil {
			t.Fatal(err)
		}
		for i, from := range []struct {
			index uint8
			gid   [16]byte
		}{{1, g.GIDs[1]}, {2, second}, {1, g.GIDs[1]}} {
			path := pathTo(b, 1)
			path.SGIDIndex = from.index
			recv := b.Recv(0, 8+testguest.GRHBytes)
			sent := a.Post(a.Datagram(path, qkey, 0, 8))
			a.Sent(sent, "SUCCESS")
			b.Received(recv, "SUCCESS")
			t.Logf("datagram %d", i)
			header(t, b.MR.Mem[:testguest.GRHBytes], 4, from.gid, b.P.G.GIDs[1])
		}
	})
}

// Whoever rejects a connection says so again when it is asked again: a datagram that was sent before is no duplicate to the device.
func TestAManagementDatagramThatIsSentTwiceArrivesTwice(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.guest("a"), d.guest("b")
		reject := mad(3)
		reject[16], reject[17] = 0, 0x12 // the attribute REJ
		for range 3 {
			deliver(t, a, b, 0, reject)
		}
	})
}

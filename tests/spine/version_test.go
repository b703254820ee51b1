// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// deviceVersion is the version that devices have if a test does not say it.
func deviceVersion(t *testing.T, g *testguest.Guest) uint32 {
	t.Helper()
	text := os.Getenv(versionVariable)
	if text == "" {
		return g.Const("PVRDMA_VERSION")
	}
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(v)
}

// gidType is the version of RoCE that a guest's device has, newestRoCE the one that it has by default.
func gidType(g *testguest.Guest) uint8 { return uint8(g.Dev.Caps().Get32("gid_types")) }

func newestRoCE(g *testguest.Guest) uint32 {
	if g.Dev.Version < g.Const("PVRDMA_ROCEV2_VERSION") {
		return g.Const("PVRDMA_GID_TYPE_FLAG_ROCE_V1")
	}
	return g.Const("PVRDMA_GID_TYPE_FLAG_ROCE_V2")
}

// versions are those of the devices of two guests. The oldest knows another RoCE than the others, and all other tests are about
// the newest.
var versions = [][2]uint32{{17, 17}, {18, 18}, {19, 19}, {18, 20}, {20, 19}}

// TestDevicesOfEachVersionCarryTheSame runs a little of everything between guests with devices of each version, and of each with
// the newest. All other tests can be run with devices of a version, too: see versionVariable.
func TestDevicesOfEachVersionCarryTheSame(t *testing.T) {
	for _, v := range versions {
		t.Run(fmt.Sprintf("%d and %d", v[0], v[1]), func(t *testing.T) {
			d := startDaemonWith(t, "poll", func(name string) string {
				return fmt.Sprintf("device_version = %d", v[name[0]-'a'])
			})
			ga, gb := d.guest("a"), d.guest("b")
			if got := [2]uint32{ga.Dev.Version, gb.Dev.Version}; got != v {
				t.Fatalf("devices of versions %d", got)
			}
			shape := testguest.Shape{Mode: verbs.Events, Bytes: memorySize, Offset: memoryStart}
			x, y := ga.Open().Endpoint(shape), gb.Open().Endpoint(shape)
			testguest.Connect(x, y)
			for _, op := range operations {
				pingPong(t, op, x, y)
			}
			everyPair(t, ga, gb)
			sharedByTwo(newPool(t, ga, gb, 2))
			ga.Stop()
			gb.Stop()

			e, f := d.datagrams("a", verbs.Polled), d.datagrams("b", verbs.Polled)
			for gid := range 2 {
				arrives(t, e, f, gid, byte(gid), 1000)
				arrives(t, f, e, gid, byte(gid), 1000)
			}
			e.P.G.Stop()
			f.P.G.Stop()

			all, _ := contenders(t, d)
			for i, c := range all {
				if found, err := c.adds(3); err != nil || found[2] != uint64(3*i+2) {
					t.Errorf("contender %d found %v, %v", i, found, err)
				}
			}
		})
	}
}

// sharedByTwo sends a message to each of two queue pairs of a shared receive queue.
func sharedByTwo(p *pool) {
	p.t.Helper()
	p.post(0, 1)
	for i, a := range p.a {
		id := a.Send(0, 8)
		p.b[i].Received(uint64(i), "SUCCESS")
		a.Sent(id, "SUCCESS")
	}
}

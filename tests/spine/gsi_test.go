// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// mad is a management datagram of connection management.
func mad(seed byte) []byte {
	b := make([]byte, 256)
	fill(b, seed)
	copy(b, []byte{1, 7, 2, 3}) // base version, class, its version, method Send
	return b
}

func TestAManagementDatagramCompletesAtItsSenderWhoeverGetsIt(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.guest("a"), d.guest("b")
		for name, gid := range map[string][16]byte{
			"to a guest": b.GIDs[0], "to itself": a.GIDs[0], "to a GID that nobody has": {0: 0xfe, 1: 0x80, 15: 0x77},
		} {
			t.Run(name, func(t *testing.T) {
				path := verbs.Path{DGID: gid, DMAC: b.MAC()}
				for _, bytes := range [][]byte{make([]byte, 256), mad(1)} {
					if err := a.GSI.Send(path, bytes, testguest.Patience); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	})
}

func TestAManagementDatagramReachesTheGuestThatHasTheAddressAlone(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			names := []string{"a", "b", "c"}
			d := launchFor(t, names, mode, "", func(string) string { return "" })
			everyPair(t, d.guest("a"), d.guest("b"), d.guest("c"))
		})
	}
}

// everyPair sends a management datagram from each guest to each, by both of its addresses.
func everyPair(t *testing.T, guests ...*testguest.Guest) {
	t.Helper()
	seed := byte(0)
	for gid := range 2 {
		for _, from := range guests {
			for _, to := range guests {
				seed++
				deliver(t, from, to, gid, mad(seed))
				for _, g := range guests {
					if wc, ok, err := g.GSI.Poll(); ok || err != nil {
						t.Fatalf("a datagram for another guest: %+v, %v", wc, err)
					}
				}
			}
		}
	}
}

// deliver sends a management datagram and looks how it arrives.
func deliver(t *testing.T, from, to *testguest.Guest, gid int, data []byte) {
	t.Helper()
	version, network := way(from, gid)
	path := verbs.Path{DGID: to.GIDs[gid], SGIDIndex: uint8(gid), DMAC: to.MAC()}
	if err := from.GSI.Send(path, data, testguest.Patience); err != nil {
		t.Fatal(err)
	}
	packet, wc, err := to.GSI.Recv(testguest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	flags := to.Const("PVRDMA_WC_GRH") | to.Const("PVRDMA_WC_WITH_NETWORK_HDR_TYPE")
	if wc.SrcQP != 1 || wc.ByteLen != 296 || wc.Flags != flags || wc.NetworkType != network || wc.PKeyIndex != 0 {
		t.Errorf("a completion %+v, want 296 bytes of queue pair 1 with flags %#x and header %d", wc, flags, network)
	}
	header(t, packet[:testguest.GRHBytes], version, from.GIDs[gid], to.GIDs[gid])
	if !bytes.Equal(packet[testguest.GRHBytes:], data) {
		t.Error("the datagram arrives as another")
	}
}

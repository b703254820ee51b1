// SPDX-License-Identifier: Apache-2.0

package hostverbs

import "testing"

// The groups are those of rdma_is_multicast_addr in include/rdma/ib_addr.h.
func TestAGroupIsNobodysAddressInEitherFamily(t *testing.T) {
	v4 := func(a, b, c, d byte) GID { return GID{10: 0xff, 11: 0xff, 12: a, 13: b, 14: c, 15: d} }
	for gid, want := range map[GID]bool{
		{}: false, {15: 1}: true, {0: 0xfe, 1: 0x80, 15: 1}: true, {0: 0x20, 1: 1, 15: 1}: true,
		{0: 0xff, 1: 0x02, 15: 1}: false, {0: 0xff, 1: 0x0e, 15: 1}: false, {0: 0xff}: false,
		v4(10, 0, 0, 1): true, v4(223, 255, 255, 255): true, v4(240, 0, 0, 1): true,
		v4(224, 0, 0, 1): false, v4(239, 255, 255, 255): false, v4(255, 255, 255, 255): false,
		{10: 0xfe, 11: 0xff, 12: 224}: true, {9: 1, 10: 0xff, 11: 0xff, 12: 224}: true,
	} {
		if got := gid.Unicast(); got != want {
			t.Errorf("%s can be the address of one port: %t, want %t", gid, got, want)
		}
	}
}

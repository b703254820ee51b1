// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"encoding/binary"
	"net/netip"
)

// GID is union pvrdma_gid (pvrdma_verbs.h): 16 bytes in network order, for RoCE v2 an IPv6
// address or an IPv4 address mapped into one.
type GID [16]byte

// SubnetPrefix returns the first half as a number.
func (g GID) SubnetPrefix() uint64 { return binary.BigEndian.Uint64(g[0:8]) }

// InterfaceID returns the second half as a number.
func (g GID) InterfaceID() uint64 { return binary.BigEndian.Uint64(g[8:16]) }

// String returns the GID as an IPv6 address.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// SPDX-License-Identifier: Apache-2.0

package hostverbs

// GID is a global identifier in network byte order.
type GID [16]byte

// GIDType is the RoCE version of a GID.
type GIDType uint8

// GID types. The values are those of the pvrdma device's gid_type flags.
const (
	GIDTypeRoCEv1 GIDType = 1
	GIDTypeRoCEv2 GIDType = 2
)

// Unicast says whether a GID can be the address of one port: it is not zero, no multicast group of either family, and not
// IPv4's broadcast.
func (g GID) Unicast() bool {
	if g.IPv4() {
		return g[12]>>4 != 0xe && [4]byte(g[12:]) != [4]byte{0xff, 0xff, 0xff, 0xff}
	}
	return g != GID{} && g[0] != 0xff
}

// IPv4 says whether a GID is an IPv4 address, ::ffff:a.b.c.d.
func (g GID) IPv4() bool {
	return [12]byte(g[:12]) == [12]byte{10: 0xff, 11: 0xff}
}

// Network is the header that a datagram comes with, enum rdma_network_type (include/rdma/ib_verbs.h) in meaning; the values
// are ours.
//
// It lies in the first GRHBytes of the receive: a GRH (InfiniBand architecture 8.3) with RoCE v1, an IPv6 header (RFC 8200),
// which has its form, or an IPv4 header (RFC 791) in the last 20 of them.
type Network uint8

// Headers of datagrams.
const (
	NetworkRoCEv1 Network = iota
	NetworkIPv4
	NetworkIPv6
)

// Network is the header of what is sent from or to a GID: the form of the GID decides, not who says what it is.
func (g GID) Network(typ GIDType) Network {
	switch {
	case typ == GIDTypeRoCEv1:
		return NetworkRoCEv1
	case g.IPv4():
		return NetworkIPv4
	}
	return NetworkIPv6
}

// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"encoding/binary"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// Sizes of what is around a datagram's payload in its packet, in bytes (InfiniBand architecture chapter 9, RFC 768 and 791).
const (
	bthBytes  = 12
	dethBytes = 8
	immBytes  = 4
	icrcBytes = 4
	udpBytes  = 8
	ipv4Bytes = 20
	padMask   = 3 // payload is filled up to four bytes
)

const (
	// protocolUDP is what an IP header says of RoCE v2, nextBTH what a GRH says of RoCE v1.
	protocolUDP = 17
	nextBTH     = 0x1b
	// dontFragment is the IPv4 flag that RoCE v2 sends with, in the 16 bits that it shares with the offset.
	dontFragment = 0x4000
)

// header writes the header that a datagram would come with into the first bytes of its receive.
func (m *message) header(b *[hostverbs.GRHBytes]byte) {
	length := bthBytes + dethBytes + (int(m.total)+padMask)&^padMask + icrcBytes
	if m.op == hostverbs.OpSendWithImm {
		length += immBytes
	}
	switch m.path.network {
	case hostverbs.NetworkIPv4:
		// What lies before it is undefined. No 6 may stand there, or the guest's kernel takes it for an IPv6 header.
		clear(b[:hostverbs.GRHBytes-ipv4Bytes])
		m.ipv4Header((*[ipv4Bytes]byte)(b[hostverbs.GRHBytes-ipv4Bytes:]), ipv4Bytes+udpBytes+length)
	case hostverbs.NetworkIPv6:
		m.globalHeader(b, udpBytes+length, protocolUDP)
	default:
		m.globalHeader(b, length, nextBTH)
	}
}

// globalHeader writes an IPv6 header or a GRH, which have one form, in front of length bytes.
func (m *message) globalHeader(b *[hostverbs.GRHBytes]byte, length int, next uint8) {
	p := &m.path
	binary.BigEndian.PutUint32(b[0:], 6<<28|uint32(p.trafficClass)<<20|p.flowLabel&0xfffff)
	binary.BigEndian.PutUint16(b[4:], uint16(length))
	b[6], b[7] = next, p.hopLimit
	copy(b[8:24], p.sgid[:])
	copy(b[24:40], m.dgid[:])
}

// ipv4Header writes the header of an IPv4 packet of length bytes.
func (m *message) ipv4Header(b *[ipv4Bytes]byte, length int) {
	p := &m.path
	b[0], b[1] = 4<<4|ipv4Bytes/4, p.trafficClass
	binary.BigEndian.PutUint16(b[2:], uint16(length))
	binary.BigEndian.PutUint16(b[4:], 0) // nothing tells packets apart that are not fragmented
	binary.BigEndian.PutUint16(b[6:], dontFragment)
	b[8], b[9] = p.hopLimit, protocolUDP
	binary.BigEndian.PutUint16(b[10:], 0)
	copy(b[12:16], p.sgid[12:])
	copy(b[16:20], m.dgid[12:])
	binary.BigEndian.PutUint16(b[10:], checksum(b))
}

// checksum is that of an IPv4 header whose own is 0 (RFC 1071). The guest's kernel believes only in a header that has it.
func checksum(b *[ipv4Bytes]byte) uint16 {
	sum := uint32(0)
	for i := 0; i < ipv4Bytes; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

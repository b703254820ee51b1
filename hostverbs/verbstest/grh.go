// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"encoding/binary"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// way is what the header in front of a datagram tells of it.
type way struct {
	network    hostverbs.Network
	sgid, dgid hostverbs.GID
	ah         hostverbs.AHAttr
	// after is the number of bytes behind the network's header and UDP's, if there is one.
	after int
}

// udpBytes is the length of a UDP header, udpProtocol its number; rocev1Next is what a GRH says of what follows it.
const (
	udpBytes    = 8
	udpProtocol = 17
	rocev1Next  = 0x1b
)

// header looks at the GRH area at off, and takes it for what it should be.
func (r *region) header(what string, off uint64, w way) {
	t := r.g.w.t
	t.Helper()
	b := make([]byte, hostverbs.GRHBytes)
	for i := range b {
		b[i] = r.g.ram[r.at(off+uint64(i))]
	}
	r.expect(off, b)
	differs := w.differs
	if w.network == hostverbs.NetworkIPv4 {
		differs = w.differsIPv4
	}
	if field := differs(b); field != "" {
		t.Errorf("%s: the header of %+v has another %s: %x", what, w, field, b)
	}
}

// differs names the first wrong field of an IPv6 header or of a GRH, which has the same form.
func (w *way) differs(b []byte) string {
	length, next := w.after+udpBytes, byte(udpProtocol)
	if w.network == hostverbs.NetworkRoCEv1 {
		length, next = w.after, rocev1Next
	}
	first := binary.BigEndian.Uint32(b)
	switch {
	case first>>28 != 6:
		return "version"
	case uint8(first>>22)&0x3f != w.ah.TrafficClass>>2:
		return "traffic class"
	case first&0xfffff != w.ah.FlowLabel:
		return "flow label"
	case int(binary.BigEndian.Uint16(b[4:])) != length:
		return "length"
	case b[6] != next:
		return "next header"
	case b[7] != w.ah.HopLimit:
		return "hop limit"
	case hostverbs.GID(b[8:24]) != w.sgid:
		return "source"
	case hostverbs.GID(b[24:40]) != w.dgid:
		return "destination"
	}
	return ""
}

// differsIPv4 is the same for an IPv4 header, which lies in the last 20 bytes. Nothing is promised of those before.
func (w *way) differsIPv4(area []byte) string {
	const bytes = 20
	b := area[len(area)-bytes:]
	sum := uint32(0)
	for i := 0; i < bytes; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	switch {
	case area[0]>>4 == 6:
		return "version (6 in front of it)"
	case b[0] != 0x45:
		return "version"
	case b[1]>>2 != w.ah.TrafficClass>>2:
		return "type of service"
	case int(binary.BigEndian.Uint16(b[2:])) != bytes+udpBytes+w.after:
		return "length"
	case b[6]&0x3f != 0 || b[7] != 0:
		return "fragment"
	case b[8] != w.ah.HopLimit:
		return "time to live"
	case b[9] != udpProtocol:
		return "protocol"
	case sum>>16+sum&0xffff != 0xffff:
		return "checksum"
	case [4]byte(b[12:16]) != [4]byte(w.sgid[12:]):
		return "source"
	case [4]byte(b[16:20]) != [4]byte(w.dgid[12:]):
		return "destination"
	}
	return ""
}

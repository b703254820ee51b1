// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// hotPath holds what a data path reuses for every message, so that nothing is allocated.
type hotPath struct {
	wqe  [256]byte
	cqe  [abi.CQESize]byte
	hdr  abi.SendWQEHdr
	rdma abi.RDMAWR
	ud   abi.UDWR
	recv abi.RecvWQEHdr
	sge  [4]abi.SGE
	out  abi.CQE
	sum  uint64
}

func newHotPath() *hotPath {
	p := &hotPath{out: abi.CQE{WRID: 1, QP: 2, Status: abi.WCWRFlushErr, ByteLen: 64}}
	(&abi.SendWQEHdr{WRID: 7, NumSGE: 4, Opcode: abi.WRRDMAWrite}).Encode(p.wqe[:])
	(&abi.RDMAWR{RemoteAddr: 0x1000, RKey: 3}).Encode(p.wqe[abi.SendWQEWROffset:])
	return p
}

// send decodes a work request with four elements and writes its completion.
func (p *hotPath) send() {
	if err := p.hdr.Decode(p.wqe[:]); err != nil {
		panic(err)
	}
	if err := p.rdma.Decode(p.wqe[abi.SendWQEWROffset:]); err != nil {
		panic(err)
	}
	sges := p.wqe[abi.SendWQESGEOffset:]
	for i := range p.sge {
		if err := p.sge[i].Decode(sges[i*abi.SGESize:]); err != nil {
			panic(err)
		}
	}
	p.out.WRID = p.hdr.WRID
	p.out.Encode(p.cqe[:])
	p.sum += p.hdr.WRID
}

func TestTheDataPathDoesNotAllocate(t *testing.T) {
	p := newHotPath()
	for _, tc := range []struct {
		name string
		run  func()
	}{
		{"a send and its completion", p.send},
		{"a receive", func() { _ = p.recv.Decode(p.wqe[:]) }},
		{"a datagram's address", func() { _ = p.ud.Decode(p.wqe[abi.SendWQEWROffset:]) }},
		{"a completion read back", func() { _ = p.out.Decode(p.cqe[:]) }},
	} {
		if n := testing.AllocsPerRun(100, tc.run); n != 0 {
			t.Errorf("%s: %v allocations", tc.name, n)
		}
	}
}

func BenchmarkSend(b *testing.B) {
	b.ReportAllocs()
	p := newHotPath()
	for b.Loop() {
		p.send()
	}
}

func BenchmarkCQEEncode(b *testing.B) {
	b.ReportAllocs()
	p := newHotPath()
	for b.Loop() {
		p.out.Encode(p.cqe[:])
	}
}

func BenchmarkSendWQEHdrDecode(b *testing.B) {
	b.ReportAllocs()
	p := newHotPath()
	for b.Loop() {
		_ = p.hdr.Decode(p.wqe[:])
	}
}

func BenchmarkUDWRDecode(b *testing.B) {
	b.ReportAllocs()
	p := newHotPath()
	for b.Loop() {
		_ = p.ud.Decode(p.wqe[abi.SendWQEWROffset:])
	}
}

func BenchmarkSGEDecode(b *testing.B) {
	b.ReportAllocs()
	p := newHotPath()
	for b.Loop() {
		_ = p.sge[0].Decode(p.wqe[abi.SendWQESGEOffset:])
	}
}

// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"net/netip"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// golden spells bytes out by what the driver and the library put there (pvrdma_qp.c,
// pvrdma_cq.c, pvrdma_main.c, and rdma-core's providers/vmw_pvrdma), little-endian.
func golden(t *testing.T, groups ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(groups, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goldenRequest is what a driver sends and what it means.
type goldenRequest struct {
	name  string
	bytes []byte
	want  codec
	got   codec
}

// bootRequests are the first ones of a Linux guest, for its management datagrams.
func bootRequests(t *testing.T) []goldenRequest {
	t.Helper()
	const hdr = "0000000000000000" // response
	return []goldenRequest{
		{
			"the MAD layer's CQ", golden(
				t, hdr, "06000000 00000000", "0010000000000000", // pdir_dma 0x1000
				"00000000 00040000 11000000 00000000",
			),
			&abi.CmdCreateCQReq{
				Hdr: abi.CmdHeader{Cmd: abi.CmdCreateCQ}, PDirDMA: 0x1000, CQE: 1024, NChunks: 17,
			},
			new(abi.CmdCreateCQReq),
		},
		{
			"the GSI QP", golden(
				t, hdr, "09000000 00000000", "0010000000000000",
				"01000000 02000000 02000000 00000000", // pd, send cq, recv cq, srq
				"80000000 00020000 02000000 01000000", // 128, 512, 2, 1
				"00000000 00000000 01000000",          // inline, lkey, access
				"0900 0400 0000 01 01 00 000000",      // chunks 9 and 4, sq_sig_all, GSI
			),
			&abi.CmdCreateQPReq{
				Hdr: abi.CmdHeader{Cmd: abi.CmdCreateQP}, PDirDMA: 0x1000, PDHandle: 1,
				SendCQHandle: 2, RecvCQHandle: 2, MaxSendWR: 128, MaxRecvWR: 512, MaxSendSGE: 2,
				MaxRecvSGE: 1, AccessFlags: abi.AccessLocalWrite, TotalChunks: 9, SendChunks: 4,
				SQSigAll: 1, QPType: abi.QPTypeGSI,
			},
			new(abi.CmdCreateQPReq),
		},
	}
}

// otherRequests are of a region, of a GID and, not a command, of the guest itself.
func otherRequests(t *testing.T) []goldenRequest {
	t.Helper()
	const hdr = "0000000000000000" // response
	return []goldenRequest{
		{
			"the DMA region of a kernel PD", golden(
				t, hdr, "04000000 00000000", strings.Repeat("00", 24),
				"01000000 01000000 01000000 00000000",
			),
			&abi.CmdCreateMRReq{
				Hdr: abi.CmdHeader{Cmd: abi.CmdCreateMR}, PDHandle: 1,
				AccessFlags: abi.AccessLocalWrite, Flags: abi.MRFlagDMA,
			},
			new(abi.CmdCreateMRReq),
		},
		{
			"a GID of 10.0.0.1", golden(
				t, hdr, "0f000000 00000000", "00040000 ff0f0000 01000000",
				"00000000000000000000ffff0a000001", "02 000000",
			),
			&abi.CmdCreateBindReq{
				Hdr: abi.CmdHeader{Cmd: abi.CmdCreateBind}, MTU: 1024, VLAN: 4095, Index: 1,
				NewGID:  abi.GID(netip.MustParseAddr("::ffff:10.0.0.1").As16()),
				GIDType: abi.GIDTypeRoCEv2,
			},
			new(abi.CmdCreateBindReq),
		},
		{
			"Linux on x86-64", golden(t, "46000000 00000000"),
			&abi.GOSInfo{GOSBits: abi.GOSBits64, GOSType: abi.GOSTypeLinux, GOSVer: 1},
			new(abi.GOSInfo),
		},
	}
}

func TestRequestsOfADriverDecodeAsItMeantThem(t *testing.T) {
	for _, tc := range append(bootRequests(t), otherRequests(t)...) {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.got.Decode(tc.bytes); err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("Decode (-want +got):\n%s", diff)
			}
			back := make([]byte, len(tc.bytes))
			tc.want.Encode(back)
			if diff := gocmp.Diff(tc.bytes, back); diff != "" {
				t.Errorf("Encode (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStridesAreThoseOfTheDriver(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stride func(uint32) (uint32, bool)
		want   map[uint32]uint32 // by number of elements; 0 for "does not fit a page"
	}{
		{"send", abi.SendWQEStride, map[uint32]uint32{
			0: 128, 1: 128, 2: 128, 3: 128, 4: 256, 8: 256, 11: 256, 12: 512, 16: 512, 27: 512,
			28: 1024, 128: 4096, 251: 4096, 252: 0, 256: 0, 1 << 28: 0, 1<<28 - 1: 0, 1<<32 - 1: 0,
		}},
		{"recv", abi.RecvWQEStride, map[uint32]uint32{
			0: 16, 1: 32, 2: 64, 3: 64, 4: 128, 7: 128, 8: 256, 16: 512, 128: 4096, 255: 4096,
			256: 0, 1 << 28: 0, 1<<28 - 1: 0, 1<<32 - 1: 0,
		}},
	} {
		for n, want := range tc.want {
			got, ok := tc.stride(n)
			if got != want || ok != (want != 0) {
				t.Errorf("%s stride of %d elements: %d, %v; want %d", tc.name, n, got, ok, want)
			}
		}
	}
	for n := uint32(1); n <= abi.MaxWQESGE; n++ {
		rounded := uint32(1) << bits.Len32(n-1)
		if _, ok := abi.SendWQEStride(rounded); !ok {
			t.Errorf("%d elements, rounded to %d by the driver, do not fit a page", n, rounded)
		}
	}
}

func TestPageCountsAreThoseOfTheDriver(t *testing.T) {
	mr := func(start, length uint64) uint64 {
		n, ok := abi.MRPages(start, length)
		if !ok {
			return 1 << 63
		}
		return n
	}
	for _, tc := range []struct {
		name string
		got  uint64
		want uint64
	}{
		{"MAD CQ", abi.CQPages(1024), 17},
		{"user CQ", abi.CQPages(512), 9},
		{"the smallest CQ", abi.CQPages(1), 2},
		{"a CQ of 2^32-1", abi.CQPages(1<<32 - 1), 1 + 1<<26},
		{"GSI send queue", abi.WQEPages(128, 128), 4},
		{"GSI receive queue", abi.WQEPages(512, 32), 4},
		{"user send queue of one", abi.WQEPages(1, 128), 1},
		{"user receive queue", abi.WQEPages(512, 32), 4},
		{"the largest queue", abi.WQEPages(1<<32-1, 4096), 1<<32 - 1},
		{"user SRQ", abi.SRQPages(512, 32), 5},
		{"a page that starts in the middle", mr(0x7f0000000800, 4096), 2},
		{"a page", mr(0x7f0000000000, 4096), 1},
		{"one byte at a page's end", mr(0x7f0000000fff, 1), 1},
		{"two bytes over a page's end", mr(0x7f0000000fff, 2), 2},
		{"nothing", mr(0x1234, 0), 0},
		{"a range that wraps around", mr(0xfffffffffffff000, 0x1001), 1 << 63},
		{"everything but the last byte", mr(0, 1<<64-1), 1 << 52},
		{"tables for a page", uint64(abi.PDirTables(1)), 1},
		{"tables for a table's pages", uint64(abi.PDirTables(512)), 1},
		{"tables for one more", uint64(abi.PDirTables(513)), 2},
		{"tables for the most pages", uint64(abi.PDirTables(abi.MaxPages)), 512},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d pages, want %d", tc.name, tc.got, tc.want)
		}
	}
}

func TestDoorbellsAreTheWordsThatTheLibraryWrites(t *testing.T) {
	for _, tc := range []struct {
		name              string
		offset, word      uint32
		wantOff, wantWord uint32
	}{
		{"QP send, handle 5", abi.UARQPOffset, abi.UARQPSend | 5, 0, 0x40000005},
		{"QP receive, handle 5", abi.UARQPOffset, abi.UARQPRecv | 5, 0, 0x80000005},
		{"CQ arm, handle 3", abi.UARCQOffset, abi.UARCQArm | 3, 4, 0x40000003},
		{"CQ arm solicited, handle 3", abi.UARCQOffset, abi.UARCQArmSol | 3, 4, 0x20000003},
		{"CQ poll, handle 3", abi.UARCQOffset, abi.UARCQPoll | 3, 4, 0x80000003},
		{"SRQ receive, handle 2", abi.UARSRQOffset, abi.UARSRQRecv | 2, 8, 0x40000002},
	} {
		if tc.offset != tc.wantOff || tc.word != tc.wantWord {
			t.Errorf("%s: %#x at %d", tc.name, tc.word, tc.offset)
		}
		if tc.word&abi.UARHandleMask != tc.wantWord&0xff {
			t.Errorf("%s: handle %d", tc.name, tc.word&abi.UARHandleMask)
		}
	}
}

func TestSizesAreTheKnownOnes(t *testing.T) {
	for name, sizes := range map[string][2]int{
		"DSR":              {abi.DSRSize, 280},
		"capabilities":     {abi.DeviceCapsSize, 208},
		"request":          {abi.CmdReqSize, 184},
		"response":         {abi.CmdRespSize, 176},
		"CQE":              {abi.CQESize, 64},
		"event":            {abi.EQESize, 8},
		"CQ notification":  {abi.CQNESize, 4},
		"send WQE header":  {abi.SendWQEHdrSize, 80},
		"recv WQE header":  {abi.RecvWQEHdrSize, 16},
		"SGE":              {abi.SGESize, 16},
		"GRH":              {abi.GRHSize, 40},
		"address vector":   {abi.AVSize, 40},
		"QP attributes":    {abi.QPAttrSize, 160},
		"registers":        {abi.RegsSize, 40},
		"version 2 answer": {abi.CmdCreateQPRespV2Size, 48},
	} {
		if sizes[0] != sizes[1] {
			t.Errorf("%s: %d bytes, want %d", name, sizes[0], sizes[1])
		}
	}
}

func TestAnAddressVectorsPartsAreFoundInItsWords(t *testing.T) {
	av := abi.AV{PortPD: 1<<24 | 0xabcdef, SLTClassFlowLabel: 0x5a<<20 | 0x12345}
	got := []uint32{av.PDHandle(), uint32(av.PortNum()), uint32(av.TrafficClass()), av.FlowLabel()}
	want := []uint32{0xabcdef, 1, 0x5a, 0x12345}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("PD, port, traffic class, flow label (-want +got):\n%s", diff)
	}
}

func TestImmediateDataPassesThroughUnchanged(t *testing.T) {
	wqe := make([]byte, abi.SendWQEHdrSize)
	copy(wqe[24:], []byte{0xde, 0xad, 0xbe, 0xef}) // htonl(0xdeadbeef)
	var h abi.SendWQEHdr
	if err := h.Decode(wqe); err != nil {
		t.Fatal(err)
	}

	cqe := make([]byte, abi.CQESize)
	(&abi.CQE{ImmData: h.Ex}).Encode(cqe)

	if got := binary.BigEndian.Uint32(cqe[28:]); got != 0xdeadbeef {
		t.Errorf("the receiver sees %#x", got)
	}
}

func TestTheFrameNumberIs32BitsWideBelowVersion19(t *testing.T) {
	b := golden(t, "0000000000000000 0d000000 00000000", "785634f2 44332211")
	var uc abi.CmdCreateUCReq
	if err := uc.Decode(b); err != nil {
		t.Fatal(err)
	}
	dsr := abi.DSR{UARPFN: uc.PFN, UARPFN64: uc.PFN64}
	for _, tc := range []struct {
		device, driver uint32
		want           uint64
	}{
		{20, 18, 0xf2345678},
		{18, 20, 0xf2345678},
		{19, 20, 0x11223344f2345678},
		{20, 20, 0x11223344f2345678},
	} {
		v := abi.EffectiveVersion(tc.device, tc.driver)
		if got := uc.PFNAt(v); got != tc.want || dsr.PFNAt(v) != tc.want {
			t.Errorf("device %d, driver %d: %#x, want %#x", tc.device, tc.driver, got, tc.want)
		}
	}
}

func TestAnMTUCodeHasItsBytes(t *testing.T) {
	for m, want := range map[abi.MTU]uint32{
		abi.MTU256: 256, abi.MTU512: 512, abi.MTU1024: 1024, abi.MTU2048: 2048, abi.MTU4096: 4096,
		0: 0, 6: 0, 1<<32 - 1: 0,
	} {
		if got := m.Bytes(); got != want {
			t.Errorf("MTU %v: %d bytes, want %d", m, got, want)
		}
	}
}

func TestAGIDPrintsAsAnAddress(t *testing.T) {
	for _, text := range []string{"fe80::250:56ff:fe00:1", "::ffff:10.0.0.1", "::"} {
		if got := abi.GID(netip.MustParseAddr(text).As16()).String(); got != text {
			t.Errorf("%s prints as %s", text, got)
		}
	}
}

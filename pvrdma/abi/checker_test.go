// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"encoding/binary"
	"maps"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// A check that cannot fail proves nothing, so here each kind of fault is planted.

// faultySGE is an SGE whose codec has one fault, chosen by its type parameter.
type faultySGE[F fault] struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

type fault interface{ plant(b []byte, decoding bool) }

func (x *faultySGE[F]) Encode(b []byte) {
	var f F
	sge := abi.SGE(*x)
	sge.Encode(b)
	f.plant(b, false)
}

func (x *faultySGE[F]) Decode(b []byte) error {
	var f F
	mine := append([]byte(nil), b...)
	if len(b) >= abi.SGESize {
		f.plant(mine, true)
	}
	var sge abi.SGE
	if err := sge.Decode(mine); err != nil {
		return err
	}
	*x = faultySGE[F](sge)
	return nil
}

type (
	noFault          struct{}
	swappedOnEncode  struct{}
	swappedOnDecode  struct{}
	swappedBothWays  struct{}
	bigEndianLength  struct{}
	writesTooFar     struct{}
	leavesOldBytes   struct{}
	writesOneByteToo struct{}
)

func swap(b []byte) {
	length, lkey := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	binary.LittleEndian.PutUint32(b[8:], lkey)
	binary.LittleEndian.PutUint32(b[12:], length)
}

func (noFault) plant([]byte, bool) {}

func (swappedOnEncode) plant(b []byte, decoding bool) {
	if !decoding {
		swap(b)
	}
}

func (swappedOnDecode) plant(b []byte, decoding bool) {
	if decoding {
		swap(b)
	}
}

func (swappedBothWays) plant(b []byte, _ bool) { swap(b) }

func (bigEndianLength) plant(b []byte, _ bool) {
	b[8], b[9], b[10], b[11] = b[11], b[10], b[9], b[8]
}

func (writesTooFar) plant(b []byte, decoding bool) {
	if !decoding {
		b[abi.SGESize] = 0
	}
}

func (leavesOldBytes) plant(b []byte, decoding bool) {
	if !decoding && b[15] == 0 {
		b[15] = filler
	}
}

func (writesOneByteToo) plant(b []byte, decoding bool) {
	if !decoding {
		b[11] |= b[12] & 1
	}
}

type shortSGE struct{ Addr uint64 }

func (x *shortSGE) Encode(b []byte)       { binary.LittleEndian.PutUint64(b[:abi.SGESize], x.Addr) }
func (x *shortSGE) Decode(b []byte) error { return new(abi.SGE).Decode(b) }

type longSGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
	RKey   uint32
}

func (x *longSGE) Encode(b []byte)       { new(abi.SGE).Encode(b) }
func (x *longSGE) Decode(b []byte) error { return new(abi.SGE).Decode(b) }

type narrowSGE struct {
	Addr   uint64
	Length uint16
	LKey   uint32
}

func (x *narrowSGE) Encode(b []byte)       { new(abi.SGE).Encode(b) }
func (x *narrowSGE) Decode(b []byte) error { return new(abi.SGE).Decode(b) }

func TestTheCheckerSeesAFaultyCodec(t *testing.T) {
	s := mustLayout(t).Structs["pvrdma_sge"]
	for _, tc := range []struct {
		name string
		new  func() codec
		want string // in one of the complaints; "" for no complaint
	}{
		{"a sound codec", mk[faultySGE[noFault]], ""},
		{"two fields swapped on encode", mk[faultySGE[swappedOnEncode]], "Encode with lkey set"},
		{"two fields swapped on decode", mk[faultySGE[swappedOnDecode]], "Decode: length"},
		{"two fields swapped both ways", mk[faultySGE[swappedBothWays]], "Encode with length set"},
		{"the other byte order", mk[faultySGE[bigEndianLength]], "Encode with length set"},
		{"a byte behind the end", mk[faultySGE[writesTooFar]], "Encode with no field set"},
		{"a byte that is not written", mk[faultySGE[leavesOldBytes]], "Encode with no field set"},
		{"a field that spills", mk[faultySGE[writesOneByteToo]], "Encode with lkey set"},
		{"a C field without Go field", mk[shortSGE], "C field lkey has no Go field"},
		{"a Go field without C field", mk[longSGE], "Go field RKey has no C field"},
		{"a field of another width", mk[narrowSGE], "Go field Length is a uint16"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(checkCodec(counterpart{tag: "pvrdma_sge", new: tc.new}, s), "\n")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("complaints: %q, want one with %q", got, tc.want)
			}
		})
	}
}

func TestTheCheckerSeesAStructureOrFieldWithoutCounterpart(t *testing.T) {
	l := *mustLayout(t)
	l.Structs = maps.Clone(l.Structs)
	l.Structs["pvrdma_new"] = &cStruct{Fields: map[string]cField{"a": {Size: 4}}}
	var all []counterpart
	for _, c := range counterparts() {
		if c.member != "wr.fast_reg" && c.tag != "pvrdma_cqe" {
			all = append(all, c)
		}
	}
	all = append(all, counterpart{tag: "pvrdma_gone"})

	got := strings.Join(checkCoverage(&l, all), "\n")

	for _, want := range []string{
		"pvrdma_new.a has no", "pvrdma_sq_wqe_hdr.wr.fast_reg.rkey has no",
		"pvrdma_cqe.wr_id has no", "no struct pvrdma_gone",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no complaint with %q in:\n%s", want, got)
		}
	}
}

func TestTheCheckerSeesAFaultyConstant(t *testing.T) {
	l := *mustLayout(t)
	l.Enums = maps.Clone(l.Enums)
	l.Enums["pvrdma_new"] = map[string]uint32{"PVRDMA_NEW": 1}
	l.Macros = maps.Clone(l.Macros)
	l.Macros["PVRDMA_NEW_MACRO"] = 1
	values, typeOf := goConstants(mustPackage(t))
	values["WCWRFlushErr"]++
	values["SomethingElse"] = 1
	values["CQESize"] = 60
	values["DSRCapsOffset"] = 64
	delete(values, "QPStateRTR")
	delete(values, "SGESize")
	typeOf["WRSend"] = "WCOpcode"

	got := strings.Join(checkConstants(&l, enumerations(), values, typeOf), "\n")

	for _, want := range []string{
		"enum pvrdma_new has no Go type", "PVRDMA_NEW_MACRO has no Go constant NewMacro",
		"PVRDMA_WC_WR_FLUSH_ERR is 0x5, WCWRFlushErr is 0x6", "SomethingElse stands for nothing",
		"CQESize is 0x3c, want 0x40", "DSRCapsOffset is 0x40, want 0x48",
		"PVRDMA_QPS_RTR has no Go constant QPStateRTR", "no Go constant SGESize",
		"WRSend is a WCOpcode, want WROpcode",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no complaint with %q in:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 9 {
		t.Errorf("%d complaints about 9 faults:\n%s", n, got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"bytes"
	"reflect"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// cut brings a drawn value to a form that the wire can hold: a union has one value, a
// bitfield so many bits.
func cut(x codec) {
	switch x := x.(type) {
	case *abi.CmdCreateUCReq:
		x.PFN = uint32(x.PFN64)
	case *abi.DSR:
		x.UARPFN = uint32(x.UARPFN64)
		cut(&x.GOSInfo)
	case *abi.GOSInfo:
		x.GOSBits &= 3
		x.GOSType &= 15
		x.GOSMisc &= 1023
	}
}

// draw fills every field of v.
func draw(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			draw(t, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			draw(t, v.Index(i))
		}
	default:
		n := rapid.Uint64().Draw(t, v.Type().Name())
		v.SetUint(n & (1<<v.Type().Bits() - 1))
	}
}

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	all := counterparts()
	l := mustLayout(t)
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(all).Draw(t, "structure")
		x := c.new()
		draw(t, reflect.ValueOf(x).Elem())
		cut(x)
		size := int(c.size(l.Structs[c.tag]))
		b := bytes.Repeat([]byte{filler}, size+margin)

		x.Encode(b)
		y := c.new()
		if err := y.Decode(b); err != nil {
			t.Fatal(err)
		}

		if diff := gocmp.Diff(x, y); diff != "" {
			t.Errorf("encoded and decoded (-before +after):\n%s", diff)
		}
		if !bytes.Equal(b[size:], bytes.Repeat([]byte{filler}, margin)) {
			t.Errorf("Encode writes behind its %d bytes", size)
		}
	})
}

func TestBytesSettleAfterOneRound(t *testing.T) {
	all := counterparts()
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(all).Draw(t, "structure")
		settle(t, c, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes"))
	})
}

// settle decodes arbitrary bytes: what comes out must survive Encode and Decode unchanged,
// and no input may do more than be refused.
func settle(t interface {
	Errorf(format string, args ...any)
}, c counterpart, b []byte,
) {
	x, y := c.new(), c.new()
	before := bytes.Clone(b)
	if x.Decode(b) != nil {
		if !reflect.DeepEqual(x, y) {
			t.Errorf("a failed Decode of %d bytes changed its receiver", len(b))
		}
		return
	}
	out := make([]byte, len(b))
	x.Encode(out)
	if err := y.Decode(out); err != nil {
		t.Errorf("%T: decode what was encoded: %v", x, err)
	}
	if diff := gocmp.Diff(x, y); diff != "" {
		t.Errorf("second round (-first +second):\n%s", diff)
	}
	if !bytes.Equal(b, before) {
		t.Errorf("%T: Decode changed its argument", x)
	}
}

// FuzzDecode feeds any bytes to every decoder. Its corpus, which includes the largest
// requests and all-ones, also runs with the ordinary tests.
func FuzzDecode(f *testing.F) {
	for i := range counterparts() {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), bytes.Repeat([]byte{0xff}, abi.DSRSize))
		f.Add(uint8(i), bytes.Repeat([]byte{0x80, 0x00, 0x7f}, abi.DSRSize/3+1))
		f.Add(uint8(i), bytes.Repeat([]byte{0x5a}, abi.SGESize))
		f.Add(uint8(i), bytes.Repeat([]byte{0x5a}, abi.CmdHeaderSize-1))
	}
	all := counterparts()
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		settle(t, all[int(which)%len(all)], b)
	})
}

// FuzzNames feeds any number to every String: it must return something for all of them.
func FuzzNames(f *testing.F) {
	for _, v := range []uint32{0, 1, 7, 0x15, 128, 129, 1 << 26, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v uint32) {
		for _, e := range enumerations() {
			if s := e.show(v).String(); s == "" || s[len(s)-1] == '|' {
				t.Errorf("%s(%#x) prints as %q", e.goType, v, s)
			}
		}
	})
}

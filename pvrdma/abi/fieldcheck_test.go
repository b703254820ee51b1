// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
)

// The checks of this file compare what a codec does with bytes to what the compiler says
// about them. There is no second table of offsets that could agree with the first in error.

const (
	filler = 0xaa // what a buffer holds before Encode
	margin = 16   // bytes behind a structure that Encode must not touch
)

// reservedName matches the C fields that have no Go counterpart and are zero on encode.
var reservedName = regexp.MustCompile(`(^|\.)(reserved\d*|pad)$`)

// leaf is a C field without members, as one counterpart sees it.
type leaf struct {
	cField
	path   string // C path below the counterpart's member
	goPath []string
}

// leaves returns the fields of c that are a Go field in it, with offsets from c's start,
// and the C paths from the structure's start that it accounts for.
func (c counterpart) leaves(s *cStruct) (fields []leaf, covered []string) {
	base := int64(0)
	prefix := ""
	if c.member != "" {
		base, prefix = s.Fields[c.member].Offset, c.member+"."
	}
	for _, full := range s.paths() {
		path, ok := strings.CutPrefix(full, prefix)
		f := s.Fields[full]
		if !ok || f.aggregate || c.blank != "" && strings.HasPrefix(path, c.blank+".") {
			continue
		}
		covered = append(covered, full)
		if reservedName.MatchString(path) || strings.Contains("."+path, "gid.global.") {
			continue // of a GID, raw is the Go field; TestAGIDsHalvesAreWhereCHasThem has the rest
		}
		f.Offset -= base
		fields = append(fields, leaf{cField: f, path: path, goPath: c.goPath(path)})
	}
	return fields, covered
}

// goPath turns a C path into the names of Go fields.
func (c counterpart) goPath(path string) []string {
	if strings.HasSuffix(path, "gid.raw") {
		path = strings.TrimSuffix(path, ".raw")
	}
	var names []string
	for from, to := range c.rename {
		if path == from {
			return []string{to}
		}
		if rest, ok := strings.CutPrefix(path, from+"."); ok {
			names, path = []string{to}, rest
		}
	}
	for w := range strings.SplitSeq(path, ".") {
		names = append(names, goName(w))
	}
	return names
}

// field returns the Go field of a leaf in x, or an invalid value.
func (l leaf) field(x codec) reflect.Value {
	v := reflect.ValueOf(x).Elem()
	for _, name := range l.goPath {
		if v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		if v = v.FieldByName(name); !v.IsValid() {
			return v
		}
	}
	return v
}

// isRaw reports whether the package passes a big-endian field on as the bytes it is.
func (l leaf) isRaw() bool { return strings.HasSuffix(l.path, "imm_data") }

// put sets a Go field of any integer or byte array type to the value that the leaf's bytes
// have; get is its inverse. They know a field's bytes from the debug information alone.
func (l leaf) put(v reflect.Value, b []byte) {
	if v.Kind() == reflect.Array {
		reflect.Copy(v, reflect.ValueOf(b))
		return
	}
	v.SetUint(l.number(b))
}

func (l leaf) number(b []byte) uint64 {
	var wide [8]byte
	if l.Order == "big" && !l.isRaw() {
		copy(wide[8-len(b):], b)
		return binary.BigEndian.Uint64(wide[:])
	}
	copy(wide[:], b)
	n := binary.LittleEndian.Uint64(wide[:])
	if l.BitSize != 0 {
		n = n >> l.BitOffset & (1<<l.BitSize - 1)
	}
	return n
}

// sameAs reports whether Go field v holds what bytes b of the leaf mean.
func (l leaf) sameAs(v reflect.Value, b []byte) bool {
	want := reflect.New(v.Type()).Elem()
	l.put(want, b)
	return reflect.DeepEqual(want.Interface(), v.Interface())
}

// fits reports whether a Go field's type has exactly the leaf's width.
func (l leaf) fits(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if l.BitSize != 0 {
			return int64(v.Type().Bits()) >= l.BitSize
		}
		return int64(v.Type().Bits()) == l.Size*8
	case reflect.Array:
		return v.Type().Elem().Kind() == reflect.Uint8 && int64(v.Len()) == l.Size
	}
	return false
}

// size returns the C size of what c stands for.
func (c counterpart) size(s *cStruct) int64 {
	if c.member != "" {
		return s.Fields[c.member].Size
	}
	return s.Size
}

// checkCodec compares a Go type with its C structure and returns what is wrong.
func checkCodec(c counterpart, s *cStruct) []string {
	var wrong []string
	complain := func(format string, args ...any) {
		what := fmt.Sprintf("%T (struct %s %s): ", c.new(), c.tag, c.member)
		wrong = append(wrong, what+fmt.Sprintf(format, args...))
	}
	fields, _ := c.leaves(s)
	used := map[string]bool{}
	for _, l := range fields {
		v := l.field(c.new())
		switch {
		case !v.IsValid():
			complain("C field %s has no Go field %s", l.path, strings.Join(l.goPath, "."))
		case !l.fits(v):
			complain("C field %s has %d bytes, Go field %s is a %s", l.path, l.Size,
				strings.Join(l.goPath, "."), v.Type())
		}
		used[strings.Join(l.goPath, ".")] = true
	}
	for _, name := range goLeaves(reflect.TypeOf(c.new()).Elem(), "") {
		if !used[name] {
			complain("Go field %s has no C field", name)
		}
	}
	if wrong != nil {
		return wrong // the rest would only repeat it
	}
	size := c.size(s)
	rng := rand.New(rand.NewPCG(uint64(size), uint64(len(fields))))
	checkEncode(c, size, fields, rng, complain)
	checkDecode(c, size, fields, rng, complain)
	checkShort(c, size, complain)
	return wrong
}

// goLeaves returns the paths of a Go structure's fields that are not structures.
func goLeaves(t reflect.Type, prefix string) []string {
	var names []string
	for f := range t.Fields() {
		if f.Type.Kind() == reflect.Struct {
			names = append(names, goLeaves(f.Type, prefix+f.Name+".")...)
			continue
		}
		names = append(names, prefix+f.Name)
	}
	return names
}

// checkEncode sets one field at a time and looks at every byte.
func checkEncode(
	c counterpart, size int64, fields []leaf, rng *rand.Rand, complain func(string, ...any),
) {
	for i := -1; i < len(fields); i++ { // -1: no field at all, so only zeroes
		x := c.new()
		want := append(make([]byte, size), bytes.Repeat([]byte{filler}, margin)...)
		name := "no field"
		if i >= 0 {
			l := fields[i]
			name = l.path
			l.pattern(want, rng)
			l.put(l.field(x), want[l.Offset:l.Offset+l.Size])
		}
		got := bytes.Repeat([]byte{filler}, int(size)+margin)
		x.Encode(got)
		if !bytes.Equal(got, want) {
			complain("Encode with %s set (C offset %d):\n got %x\nwant %x", name,
				offsetOf(fields, i), got, want)
		}
	}
}

// pattern fills the leaf's bytes, or bits, of b with random ones, none of them zero.
func (l leaf) pattern(b []byte, rng *rand.Rand) {
	if l.BitSize != 0 {
		ones := uint32(1<<l.BitSize-1) << l.BitOffset
		binary.LittleEndian.PutUint32(b[l.Offset:], ones)
		return
	}
	for i := range l.Size {
		b[l.Offset+i] = byte(1 + rng.IntN(255))
	}
}

func offsetOf(fields []leaf, i int) int64 {
	if i < 0 {
		return 0
	}
	return fields[i].Offset
}

// checkDecode decodes random bytes and looks at every field. Three rounds make two equal
// bytes in the wrong places a matter of 2^-24.
func checkDecode(
	c counterpart, size int64, fields []leaf, rng *rand.Rand, complain func(string, ...any),
) {
	for range 3 {
		b := make([]byte, size+margin)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		before := bytes.Clone(b)
		x := c.new()
		if err := x.Decode(b); err != nil {
			complain("Decode of %d bytes: %v", size, err)
			return
		}
		for _, l := range fields {
			raw := b[l.Offset : l.Offset+l.Size]
			if v := l.field(x); !l.sameAs(v, raw) {
				complain("Decode: %s (C offset %d) is %#x, its bytes are %x", l.path, l.Offset,
					v.Interface(), raw)
			}
		}
		if !bytes.Equal(b, before) {
			complain("Decode changes its argument")
		}
	}
}

// checkShort gives the codec one byte too few.
func checkShort(c counterpart, size int64, complain func(string, ...any)) {
	x := c.new()
	if err := x.Decode(bytes.Repeat([]byte{filler}, int(size)-1)); err == nil {
		complain("Decode takes %d bytes instead of %d", size-1, size)
	}
	if !reflect.DeepEqual(x, c.new()) {
		complain("a failed Decode changes its receiver")
	}
	defer func() {
		if recover() == nil {
			complain("Encode takes %d bytes instead of %d", size-1, size)
		}
	}()
	x.Encode(make([]byte, size-1))
}

// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// cLayout is what the C headers say, in the words of C. Its JSON form is
// testdata/layout.json.
type cLayout struct {
	// Structs: by tag. Structures and unions that the headers name.
	Structs map[string]*cStruct `json:"structs"`
	// Enums: by tag, or "first:<first enumerator>" for an enumeration without one.
	// Values are the 32-bit pattern as an unsigned number.
	Enums map[string]map[string]uint32 `json:"enums"`
	// Macros: object-like macros with a value, the same way.
	Macros map[string]uint32 `json:"macros"`
}

type cStruct struct {
	Kind string `json:"kind"` // "struct" or "union"
	Size int64  `json:"size"`
	// Fields: by path from the outer structure, as C would write the access:
	// "attrs.ah_attr.grh.dgid.raw". Aggregates are listed beside their members.
	Fields map[string]cField `json:"fields"`
}

type cField struct {
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	Type   string `json:"type"`            // C spelling: "u32", "struct pvrdma_sge", "u8[16]"
	Order  string `json:"order,omitempty"` // "big" for the __be types; else absent
	// Bitfields only: first bit, counted from bit 0 of the little-endian number at Offset
	// of Size bytes, and width.
	BitOffset int64 `json:"bit_offset,omitempty"`
	BitSize   int64 `json:"bit_size,omitempty"`

	aggregate bool // has members of its own
}

// paths returns the paths of all fields, by offset; an aggregate comes before its members.
func (s *cStruct) paths() []string {
	return slices.SortedFunc(maps.Keys(s.Fields), func(x, y string) int {
		a, b := s.Fields[x], s.Fields[y]
		return cmp.Or(
			cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.BitOffset, b.BitOffset),
			cmp.Compare(b.Size, a.Size), cmp.Compare(x, y),
		)
	})
}

// debugInformation reads what the compiler has noted in an object file.
func debugInformation(obj string) (*dwarf.Data, error) {
	f, err := elf.Open(obj)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, err := f.DWARF()
	if err != nil {
		return nil, fmt.Errorf("read debug information: %w", err)
	}
	return d, nil
}

// readLayout reads every type that the abiHeaders define from an object file.
func readLayout(obj string) (*cLayout, error) {
	d, err := debugInformation(obj)
	if err != nil {
		return nil, err
	}
	l := &cLayout{Structs: map[string]*cStruct{}, Enums: map[string]map[string]uint32{}}
	r := d.Reader()
	cu, err := r.Next()
	if err != nil {
		return nil, err
	}
	lines, err := d.LineReader(cu)
	if err != nil {
		return nil, err
	}
	for {
		e, err := r.Next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			return l, nil
		}
		if err := l.addEntry(d, e, lines.Files()); err != nil {
			return nil, err
		}
		r.SkipChildren()
	}
}

// addEntry adds a top-level type that comes from one of the abiHeaders.
func (l *cLayout) addEntry(d *dwarf.Data, e *dwarf.Entry, files []*dwarf.LineFile) error {
	switch e.Tag {
	case dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagEnumerationType:
	default:
		return nil
	}
	n, ok := e.Val(dwarf.AttrDeclFile).(int64)
	if !ok || !slices.Contains(abiHeaders, filepath.Base(files[n].Name)) {
		return nil
	}
	typ, err := d.Type(e.Offset)
	if err != nil {
		return err
	}
	switch t := typ.(type) {
	case *dwarf.EnumType:
		return l.addEnum(t)
	case *dwarf.StructType:
		if t.Incomplete || t.StructName == "" {
			return nil // anonymous ones are listed with their parents
		}
		s := &cStruct{Kind: t.Kind, Size: t.ByteSize, Fields: map[string]cField{}}
		l.Structs[t.StructName] = s
		return s.addFields(t, "", 0)
	}
	return errors.New("unexpected kind of type: " + typ.String())
}

func (l *cLayout) addEnum(t *dwarf.EnumType) error {
	name := t.EnumName
	if name == "" {
		name = "first:" + t.Val[0].Name
	}
	if l.Enums[name] != nil {
		return fmt.Errorf("enum %s is defined twice", name)
	}
	values := map[string]uint32{}
	for _, v := range t.Val {
		values[v.Name] = uint32(v.Val)
	}
	l.Enums[name] = values
	return nil
}

func (s *cStruct) addFields(t *dwarf.StructType, prefix string, base int64) error {
	for _, f := range t.Field {
		if f.Name == "" { // an anonymous member: C reaches its members directly
			inner, ok := stripNames(f.Type).(*dwarf.StructType)
			if !ok {
				return fmt.Errorf("%s: nameless member of type %s", t.StructName, f.Type)
			}
			if err := s.addFields(inner, prefix, base+f.ByteOffset); err != nil {
				return err
			}
			continue
		}
		path := prefix + f.Name
		if _, dup := s.Fields[path]; dup {
			return fmt.Errorf("%s: field %s twice", t.StructName, path)
		}
		field := cField{Offset: base + f.ByteOffset, Size: f.Type.Size(), Type: spell(f.Type)}
		if strings.HasPrefix(spell(f.Type), "__be") {
			field.Order = "big"
		}
		if f.BitSize != 0 {
			unit := f.Type.Size() * 8
			field.BitSize, field.BitOffset = f.BitSize, f.DataBitOffset%unit
			field.Offset = base + f.DataBitOffset/unit*f.Type.Size()
		}
		inner, ok := stripNames(f.Type).(*dwarf.StructType)
		field.aggregate = ok && field.Type != "atomic_t"
		s.Fields[path] = field
		if !field.aggregate {
			continue
		}
		if err := s.addFields(inner, path+".", field.Offset); err != nil {
			return err
		}
	}
	return nil
}

// stripNames follows typedefs and qualifiers.
func stripNames(t dwarf.Type) dwarf.Type {
	for {
		switch n := t.(type) {
		case *dwarf.TypedefType:
			t = n.Type
		case *dwarf.QualType:
			t = n.Type
		default:
			return t
		}
	}
}

// spell writes a type as C does, with an array's length behind the element type.
func spell(t dwarf.Type) string {
	switch n := t.(type) {
	case *dwarf.StructType:
		if n.StructName == "" {
			return n.Kind
		}
		return n.Kind + " " + n.StructName
	case *dwarf.EnumType:
		return "enum " + n.EnumName
	case *dwarf.ArrayType:
		return fmt.Sprintf("%s[%d]", spell(n.Type), n.Count)
	}
	return t.String()
}

// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"encoding/binary"
	"fmt"
)

// Field is one field of a structure.
type Field struct {
	// Offset is from the structure's begin, Size the field's length, in bytes.
	Offset int `json:"offset"`
	Size   int `json:"size"`
	// Type is the field's type in C.
	Type string `json:"type"`
	// Order is "big" for the few fields that are not little-endian.
	Order string `json:"order"`
	// BitOffset and BitSize are set for a bit field, within its little-endian word.
	BitOffset int `json:"bit_offset"`
	BitSize   int `json:"bit_size"`
}

// Get reads an integer field from the structure that begins at b[0].
func (f Field) Get(b []byte) uint64 {
	v := f.word(b)
	if f.BitSize > 0 {
		v = v >> f.BitOffset & (1<<f.BitSize - 1)
	}
	return v
}

func (f Field) word(b []byte) uint64 {
	p := f.Slice(b)
	switch {
	case f.Size == 1:
		return uint64(p[0])
	case f.Size == 2 && f.Order == "big":
		return uint64(binary.BigEndian.Uint16(p))
	case f.Size == 2:
		return uint64(binary.LittleEndian.Uint16(p))
	case f.Size == 4 && f.Order == "big":
		return uint64(binary.BigEndian.Uint32(p))
	case f.Size == 4:
		return uint64(binary.LittleEndian.Uint32(p))
	case f.Size == 8 && f.Order == "big":
		return binary.BigEndian.Uint64(p)
	case f.Size == 8:
		return binary.LittleEndian.Uint64(p)
	}
	panic(fmt.Sprintf("a field of %d bytes is no integer", f.Size))
}

// Put writes an integer field of the structure that begins at b[0]; bits that do not fit the field are lost, as in C.
func (f Field) Put(b []byte, v uint64) {
	if f.BitSize > 0 {
		mask := uint64(1<<f.BitSize-1) << f.BitOffset
		v = f.word(b)&^mask | v<<f.BitOffset&mask
	}
	p := f.Slice(b)
	switch {
	case f.Size == 1:
		p[0] = byte(v)
	case f.Size == 2 && f.Order == "big":
		binary.BigEndian.PutUint16(p, uint16(v))
	case f.Size == 2:
		binary.LittleEndian.PutUint16(p, uint16(v))
	case f.Size == 4 && f.Order == "big":
		binary.BigEndian.PutUint32(p, uint32(v))
	case f.Size == 4:
		binary.LittleEndian.PutUint32(p, uint32(v))
	case f.Size == 8 && f.Order == "big":
		binary.BigEndian.PutUint64(p, v)
	case f.Size == 8:
		binary.LittleEndian.PutUint64(p, v)
	default:
		panic(fmt.Sprintf("a field of %d bytes is no integer", f.Size))
	}
}

// Slice returns the field's bytes in the structure that begins at b[0].
func (f Field) Slice(b []byte) []byte { return b[f.Offset : f.Offset+f.Size] }

// View is a structure in a buffer.
type View struct {
	layout *Layout
	name   string
	bytes  []byte
}

// New returns a zeroed structure in a buffer of its own.
func (l *Layout) New(name string) View {
	return View{layout: l, name: name, bytes: make([]byte, l.Size(name))}
}

// View returns the structure that begins at b[0]. It panics if b is too short for it.
func (l *Layout) View(name string, b []byte) View {
	return View{layout: l, name: name, bytes: b[:l.Size(name)]}
}

// Bytes returns the structure's bytes, not a copy.
func (v View) Bytes() []byte { return v.bytes }

// Name is the structure's name in C.
func (v View) Name() string { return v.name }

// Get returns an integer field.
func (v View) Get(path string) uint64 { return v.layout.Field(v.name, path).Get(v.bytes) }

// Get32 returns an integer field of at most 32 bits.
func (v View) Get32(path string) uint32 { return uint32(v.Get(path)) }

// Set writes an integer field and returns the view, so that settings chain.
func (v View) Set(path string, value uint64) View {
	v.layout.Field(v.name, path).Put(v.bytes, value)
	return v
}

// SetBytes writes a field that is an array of bytes and returns the view.
func (v View) SetBytes(path string, b []byte) View {
	copy(v.layout.Field(v.name, path).Slice(v.bytes), b)
	return v
}

// Slice returns a field's bytes, not a copy.
func (v View) Slice(path string) []byte { return v.layout.Field(v.name, path).Slice(v.bytes) }

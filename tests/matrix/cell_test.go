// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"golang.org/x/sys/unix"
)

// cell is one value of one field and what becomes of a command that is honest but for it.
type cell struct {
	name  string
	value func(b *board) any // a uint64, or the bytes of an array
	// before changes other fields, so that the device comes to look at this one.
	before func(b *board, v layout.View)
	// want is the errno, 0 if the command succeeds. If it does, ignored says why the value makes no difference at all;
	// empty if it may make one.
	want    unix.Errno
	ignored string
}

// named is a value that depends on the guest.
type named struct {
	name  string
	value func(b *board) any
}

// num is a named number.
func num(name string, f func(b *board) uint64) named {
	return named{name, func(b *board) any { return f(b) }}
}

func handle(name string, f func(b *board) uint32) named {
	return num(name, func(b *board) uint64 { return uint64(f(b)) })
}

func cells(want unix.Errno, ignored string, values []any) []cell {
	out := make([]cell, 0, len(values))
	for _, v := range values {
		c := cell{want: want, ignored: ignored}
		switch v := v.(type) {
		case named:
			c.name, c.value = v.name, v.value
		case []byte:
			c.name, c.value = fmt.Sprintf("% x", v), func(*board) any { return v }
		case int:
			c.name, c.value = fmt.Sprintf("%#x", v), func(*board) any { return uint64(v) }
		case uint64:
			c.name, c.value = fmt.Sprintf("%#x", v), func(*board) any { return v }
		default:
			panic(fmt.Sprintf("a cell of type %T", v))
		}
		out = append(out, c)
	}
	return out
}

// refused are values with which the command fails.
func refused(want unix.Errno, values ...any) []cell { return cells(want, "", values) }

// taken are values in range.
func taken(values ...any) []cell { return cells(0, "", values) }

// ignored are values that nobody looks at, and why that is right.
func ignored(why string, values ...any) []cell { return cells(0, why, values) }

// with has other fields changed first.
func with(name string, before func(b *board, v layout.View), cs ...[]cell) []cell {
	out := join(cs...)
	for i := range out {
		out[i].name += ", " + name
		out[i].before = before
	}
	return out
}

func join(cs ...[]cell) (out []cell) {
	for _, c := range cs {
		out = append(out, c...)
	}
	return out
}

// set writes a value into a field.
func (c cell) set(b *board, v layout.View, path string) {
	if c.before != nil {
		c.before(b, v)
	}
	switch x := c.value(b).(type) {
	case uint64:
		v.Set(path, x)
	case []byte:
		v.SetBytes(path, x)
	}
}

// Values of 32 bits that are no small number.
const (
	max32 = uint64(1<<32 - 1)
	max64 = uint64(1<<64 - 1)
)

// handles are all numbers that name no object of the guest's own of that kind: 0 unless it names one, the other guest's
// last, a destroyed one, and one that names something else.
func handles(dead, wrong func(b *board) uint32, more ...any) []cell {
	return refused(unix.EINVAL, append([]any{
		unknown, max32, 1 << 24, 1 << 31,
		handle("destroyed", dead), handle("something else's", wrong),
		handle("the other guest's", func(*board) uint32 { return others }),
	}, more...)...)
}

// directories are addresses of page directories that lead nowhere.
func directories(writes bool) []cell {
	const hole, end = 3 << 30, 4<<30 + 512<<10
	out := join(
		refused(unix.EINVAL, 0, 1, named{"off its page by 8", off(8)}, named{"off its page by 4095", off(4095)}, max64),
		refused(unix.EFAULT, num("in a hole", at(hole)), num("behind the memory", at(end)), num("the last page there is", at(max64-4095))),
		taken(named{"one page many times", func(b *board) any { return b.wide(sparePages) }}),
	)
	for _, e := range []struct {
		name string
		addr uint64
		want unix.Errno
	}{
		{"of 0", 0, unix.EINVAL},
		{"off its page", end - 4096 + 8, unix.EINVAL},
		{"in a hole", hole, unix.EFAULT},
		{"behind the memory", end, unix.EFAULT},
		{"at the end of time", max64 - 4095, unix.EFAULT},
	} {
		out = append(out, spoiledDirectories(e.name, e.addr, e.want)...)
	}
	if writes {
		out = append(out, refused(unix.EFAULT, spoiledPage("of read-only memory", 0, romPage))...)
	} else {
		out = append(out, taken(spoiledPage("of read-only memory", 0, romPage))...)
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package ringbuf

import (
	"testing"
	"unsafe"
)

// Fields with different writers share no pair of cache lines, wherever the queue lies in memory.
func TestWritersKeepOutOfEachOthersLines(t *testing.T) {
	const apart = 128
	var s SPSC[byte]
	var m MPSC[byte]
	type field struct {
		name     string
		from, to uintptr
	}
	at := func(name string, off, size uintptr) field { return field{name, off, off + size} }
	for _, q := range []struct {
		name   string
		size   uintptr
		fields []field
	}{
		{"SPSC", unsafe.Sizeof(s), []field{
			at("buf, mask", 0, unsafe.Offsetof(s.mask)+8),
			at("tail", unsafe.Offsetof(s.tail), 8),
			at("head", unsafe.Offsetof(s.head), 8),
			at("pushed, headSeen", unsafe.Offsetof(s.pushed), unsafe.Offsetof(s.headSeen)+8-unsafe.Offsetof(s.pushed)),
			at("popped, tailSeen", unsafe.Offsetof(s.popped), unsafe.Offsetof(s.tailSeen)+8-unsafe.Offsetof(s.popped)),
		}},
		{"MPSC", unsafe.Sizeof(m), []field{
			at("slots, mask", 0, unsafe.Offsetof(m.mask)+8),
			at("tail", unsafe.Offsetof(m.tail), 8),
			at("headSeen", unsafe.Offsetof(m.headSeen), 8),
			at("head", unsafe.Offsetof(m.head), 8),
			at("popped", unsafe.Offsetof(m.popped), 8),
		}},
	} {
		for i, f := range q.fields {
			next := field{"what lies behind", q.size, q.size}
			if i+1 < len(q.fields) {
				next = q.fields[i+1]
			}
			if next.from < f.to+apart {
				t.Errorf("%s: %s ends at %d, %s begins at %d, less than %d on", q.name, f.name, f.to, next.name, next.from, apart)
			}
		}
		if q.size > 1024 {
			t.Errorf("%s has %d bytes, more than documented", q.name, q.size)
		}
	}
}

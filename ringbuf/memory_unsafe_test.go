// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"sync/atomic"
	"unsafe"
)

// memory is a ring as guest and device share it: the two indices in the first eight bytes, then the slots. The bytes
// come from the heap, where the race detector watches them.
type memory []byte

const (
	prodTail  = 0
	consHead  = 4
	slotsAt   = 8
	slotBytes = 24
)

// newMemory makes a ring with its indices at start. The slice is made of words, so that the indices are aligned.
func newMemory(slots, start uint32) memory {
	words := make([]uint64, (slotsAt+slotBytes*slots)/8)
	m := memory(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8))
	m.store(prodTail, start)
	m.store(consHead, start)
	return m
}

func (m memory) word(at int) *uint32 { return (*uint32)(unsafe.Pointer(&m[at])) }

func (m memory) load(at int) uint32     { return atomic.LoadUint32(m.word(at)) }
func (m memory) store(at int, v uint32) { atomic.StoreUint32(m.word(at), v) }

func (m memory) slot(i uint32) []byte { return m[slotsAt+i*slotBytes:][:slotBytes] }

// write fills a slot, a byte at a time; read looks at all of it.
func (m memory) write(i uint32, v value) {
	for j := range m.slot(i) {
		m.slot(i)[j] = byte(v)
	}
}

func (m memory) read(i uint32) value {
	s := m.slot(i)
	for _, b := range s {
		if b != s[0] {
			return torn
		}
	}
	return value(s[0])
}

// writeWord and readWord do the same with one atomic word, where the race detector is not to be asked.
func (m memory) writeWord(i uint32, v value) { m.store(slotsAt+int(i)*slotBytes, uint32(v)) }
func (m memory) readWord(i uint32) value     { return value(m.load(slotsAt + int(i)*slotBytes)) }

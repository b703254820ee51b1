// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestASpaceAgreesWithAnArrayOfBytes(t *testing.T) {
	inBothForms(t, checkModel)
}

func checkModel(t *testing.T, f form) {
	files := makeFiles(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t, f, files)
		p := rapidPlayer{rt}
		defer m.free()
		m.start(p)
		// To compare all bytes after every action would take most of the time.
		steps := 0
		actions := map[string]func(*rapid.T){"": func(rt *rapid.T) {
			if steps++; steps%8 == 0 {
				m.check(rapidPlayer{rt})
			}
		}}
		for name, act := range m.actions() {
			actions[name] = func(rt *rapid.T) { act(rapidPlayer{rt}) }
		}
		rt.Repeat(actions)
		m.check(p)
		m.end(p)
	})
}

// bytePlayer lets the bytes of a fuzzer choose. When they are used up it chooses the least.
type bytePlayer struct {
	testing.TB
	data []byte
}

func (p *bytePlayer) choose(lo, hi int, _ string) int {
	n, v := uint64(hi-lo)+1, uint64(0)
	for span := uint64(1); span < n && len(p.data) > 0; span <<= 8 {
		v = v<<8 | uint64(p.data[0])
		p.data = p.data[1:]
	}
	return lo + int(v%n)
}

// playBytes plays a game whose actions are bytes.
func playBytes(t *testing.T, f form, data []byte) {
	const most = 512 // actions
	m := newModel(t, f, makeFiles(t))
	p := &bytePlayer{t, data}
	defer m.free()
	m.start(p)
	actions := m.actions()
	names := slices.Sorted(maps.Keys(actions))
	for i := 0; i < most && len(p.data) > 0; i++ {
		actions[names[p.choose(0, len(names)-1, "action")]](p)
		if i%16 == 0 {
			m.check(p)
		}
	}
	m.check(p)
	m.end(p)
}

// FuzzSpace has the fuzzer map, unmap, pin, copy, punch and truncate in any order while another thread rewrites part of the
// memory. The model knows every byte that must be anywhere, and what must be refused or fault.
func FuzzSpace(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{0, 1, 64, 512, 512, 2048, 2048} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, form := range bothForms {
			playBytes(t, form, data)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"bytes"
	"errors"
	"slices"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

func (m *model) mapRegion(t player) {
	first := t.choose(0, modelPages-1, "first")
	n := t.choose(1, min(8, modelPages-first), "pages")
	file := t.choose(-1, modelFiles-1, "file")
	start := t.choose(0, filePages-2, "start")
	prot := []guestmem.Prot{rw, rw, rw, rw, guestmem.ProtRead, guestmem.ProtWrite}[t.choose(0, 5, "prot")]
	fd, want := -1, error(nil)
	if file >= 0 {
		fd = m.fds[file]
		if start+n > m.length[file] {
			want = unix.EINVAL
		}
	}
	for i := first; i < first+n; i++ {
		if m.pages[i].mapped {
			want = unix.EEXIST
		}
	}
	err := m.s.Map(uint64(first)*page, uint64(n)*page, fd, uint64(start)*page, prot)
	if !errors.Is(err, want) {
		t.Fatalf("map: %v, want %v", err, want)
	}
	if want != nil {
		return
	}
	m.enter(first, n, mpage{mapped: true, file: file, page: start, prot: prot})
}

func (m *model) unmap(t player) {
	var ids []int
	for id := 1; id <= m.next; id++ {
		if _, ok := m.regions[id]; ok {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	id := ids[t.choose(0, len(ids)-1, "region")]
	r := m.regions[id]
	if err := m.s.Unmap(uint64(r[0])*page, uint64(r[1])*page); err != nil {
		t.Fatalf("unmap: %v", err)
	}
	delete(m.regions, id)
	for i := range r[1] {
		m.pages[r[0]+i] = mpage{}
	}
	for _, l := range m.lists {
		for _, pg := range l.at {
			l.dead = l.dead || pg.region == id
		}
		if l.p.Revoked() != l.dead {
			t.Fatalf("list is revoked: %v, want %v", l.p.Revoked(), l.dead)
		}
	}
}

// pageList chooses stretches of adjacent pages. Mostly they can be pinned, or hardly any list would come about.
func (m *model) pageList(t player) []int {
	anything := oneIn(t, 6, "any page")
	good := func(i int) bool {
		return i < modelPages && m.pages[i].mapped && m.pages[i].file >= 0 && m.pages[i].prot == rw
	}
	var list []int
	for range t.choose(1, 4, "stretches") {
		i := t.choose(0, modelPages, "first")
		for range t.choose(1, 4, "length") {
			if good(i) || anything {
				list = append(list, i)
			}
			i++
		}
	}
	if len(list) == 0 {
		return []int{0}
	}
	return list
}

func (m *model) pin(t player) {
	const most = 16 // lists at a time
	if len(m.lists) == most {
		return
	}
	l, addrs, want := m.newList(t)
	how, windows := m.s.PinContiguous, m.form == windowed
	if oneIn(t, 4, "as a list") {
		how, windows = m.s.Pin, false
		if l.room = oneIn(t, 2, "with room"); l.room {
			how = m.fillNew
		}
	}
	p, err := how(addrs, l.prot)
	m.verdict(t, "pin", err, want)
	if err != nil {
		return
	}
	if p.Window() != (windows && p.Runs() > 1) {
		t.Fatalf("list of %d runs: window %v, %v", p.Runs(), p.Window(), p.Scattered())
	}
	l.p = p
	m.lists = append(m.lists, l)
}

// newList chooses a list of pages, and says what pinning it gives.
func (m *model) newList(t player) (l *mlist, addrs []uint64, want outcome) {
	list := m.pageList(t)
	prot := []guestmem.Prot{rw, rw, guestmem.ProtRead}[t.choose(0, 2, "prot")]
	l, want = &mlist{prot: prot}, works
	for _, i := range list {
		addrs = append(addrs, uint64(i)*page)
		if i >= modelPages || !m.pages[i].mapped || m.pages[i].file < 0 || prot&^m.pages[i].prot != 0 {
			want = refused
			continue
		}
		l.at = append(l.at, m.pages[i])
	}
	return l, addrs, want
}

// mostFilled is how many pages the lists with room have room for: pageList gives no more.
const mostFilled = 2 * modelPages

// fillNew is Pin by way of an empty list.
func (m *model) fillNew(pages []uint64, prot guestmem.Prot) (*guestmem.Pages, error) {
	p, err := m.s.NewList(mostFilled)
	if err != nil {
		return nil, err
	}
	if err := p.Fill(pages, prot); err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

// refill gives a list with room other pages, or none.
func (m *model) refill(t player) {
	if len(m.lists) == 0 {
		return
	}
	l := m.list(t, "refill")
	if !l.room {
		return
	}
	if oneIn(t, 4, "empty") {
		l.p.Empty()
		l.at, l.dead = nil, true
		return
	}
	fresh, addrs, want := m.newList(t)
	m.verdict(t, "refill", l.p.Fill(addrs, fresh.prot), want)
	if l.at, l.prot, l.dead = fresh.at, fresh.prot, want != works; l.dead {
		l.at = nil
	}
}

// overlap says whether two places are one, or one range has a place twice: the result of a copy is not defined then.
func overlap(to, from []*cell) bool {
	used := map[*cell]bool{}
	for _, c := range to {
		used[c] = true
	}
	return len(used) != len(to) || slices.ContainsFunc(from, func(c *cell) bool { return used[c] })
}

func (m *model) copy(t player) {
	dst, n := m.span(t, "dst")
	src, k := m.span(t, "src")
	n = min(n, k)
	to, out1 := m.where(dst, n, guestmem.ProtWrite)
	from, out2 := m.where(src, n, guestmem.ProtRead)
	if overlap(to, from) {
		return
	}
	copyBytes := guestmem.Copy
	if oneIn(t, 2, "long") {
		copyBytes = guestmem.CopyLong
	}
	err := copyBytes(dst.mem, dst.off, src.mem, src.off, n)
	m.verdict(t, "copy", err, min(out1, out2))
	var side *guestmem.CopyError
	if err != nil && (!errors.As(err, &side) || (side.Dst && out1 == works) || (!side.Dst && out2 == works)) {
		t.Fatalf("copy blames the wrong side: %v", err)
	}
	switch min(out1, out2) {
	case works:
		for i := range to {
			to[i].put(*from[i])
		}
	case faults:
		forgetPlaces(to)
	}
}

func (m *model) write(t player) {
	dst, n := m.span(t, "dst")
	b := bytes.Repeat([]byte{byte(t.choose(0, 255, "byte"))}, int(n))
	to, out := m.where(dst, n, guestmem.ProtWrite)
	m.verdict(t, "write", guestmem.CopyIn(dst.mem, dst.off, b), out)
	if out == faults {
		forgetPlaces(to)
		return
	}
	for i := range to {
		to[i].put(cell(b[i]))
	}
}

func (m *model) read(t player) {
	src, n := m.span(t, "src")
	from, out := m.where(src, n, guestmem.ProtRead)
	b := make([]byte, n)
	m.verdict(t, "read", guestmem.CopyOut(b, src.mem, src.off), out)
	if out != works {
		return
	}
	for i, c := range from {
		if *c < unknown && cell(b[i]) != *c {
			t.Fatalf("byte %d is %#x, want %#x", i, b[i], *c)
		}
	}
}

func (m *model) word(t player) {
	if len(m.lists) == 0 {
		return
	}
	l := m.list(t, "word")
	if raceEnabled && m.lost(l) {
		return
	}
	off := uint64(t.choose(0, int(l.p.Len()/4), "word") * 4)
	v := uint32(t.choose(0, 1<<31-1, "value"))
	to, out := m.where(span{list: l, off: off}, 4, guestmem.ProtWrite)
	store := l.p.Store32
	if v%2 == 1 {
		store = l.p.Publish32
	}
	m.verdict(t, "store", guarded(m.dom, func() error { return store(off, v) }), out)
	if out == works {
		for i := range to {
			to[i].put(cell(byte(v >> (8 * i)))) // tests run on little-endian machines
		}
	}
	from, out := m.where(span{list: l, off: off}, 4, guestmem.ProtRead)
	var got uint32
	m.verdict(t, "load", guarded(m.dom, func() (err error) { got, err = l.p.Load32(off); return err }), out)
	if out != works {
		return
	}
	for i, c := range from {
		if *c < unknown && *c != cell(byte(got>>(8*i))) {
			t.Fatalf("word is %#x", got)
		}
	}
}

// punch discards pages of a file, as a guest's balloon does.
func (m *model) punch(t player) {
	file, first := t.choose(0, modelFiles-1, "file"), t.choose(0, filePages-1, "first")
	n := t.choose(1, filePages-first, "pages")
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(m.fds[file], mode, int64(first)*page, int64(n)*page); err != nil {
		t.Fatalf("punch: %v", err)
	}
	if file != noisyFile {
		clear(m.mem[file][first*page : (first+n)*page])
	}
}

// truncate takes the end of a file away or brings it back, empty.
func (m *model) truncate(t player) {
	file, n := t.choose(0, noisyFile-1, "file"), filePages
	if !oneIn(t, 3, "whole") {
		n = t.choose(1, filePages, "pages")
	}
	if err := unix.Ftruncate(m.fds[file], int64(n)*page); err != nil {
		t.Fatalf("truncate: %v", err)
	}
	clear(m.mem[file][min(n, m.length[file])*page:])
	m.length[file] = n
}

func (m *model) toggle(t player) {
	if m.off = !m.off && oneIn(t, 4, "off"); m.off == m.s.Enabled() {
		m.s.SetEnabled(!m.off)
	}
}

func (m *model) release(t player) {
	if len(m.lists) == 0 {
		return
	}
	i := t.choose(0, len(m.lists)-1, "list")
	m.lists[i].p.Release()
	m.lists = slices.Delete(m.lists, i, i+1)
}

// actions are what may happen. What builds up and what looks comes more often than what takes away.
func (m *model) actions() map[string]func(player) {
	return map[string]func(player){
		"map": m.mapRegion, "map2": m.mapRegion, "map3": m.mapRegion, "unmap": m.unmap, "pin": m.pin, "pin2": m.pin, "pin3": m.pin,
		"copy": m.copy, "copy2": m.copy, "copy3": m.copy, "write": m.write, "write2": m.write, "read": m.read, "read2": m.read,
		"word": m.word, "punch": m.punch, "truncate": m.truncate, "switch": m.toggle, "release": m.release,
		"refill": m.refill,
	}
}

// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

const (
	modelPages = 24 // guest pages of the model
	modelFiles = 3
	filePages  = 12
)

// mpage is what the model knows of a guest page: nothing (file < 0 and not mapped), or a page of a file.
type mpage struct {
	mapped     bool
	file, page int // file < 0: no memory
	prot       guestmem.Prot
	region     int
}

// mlist is a pinned list in the model: where each of its pages really lies.
type mlist struct {
	p    *guestmem.Pages
	at   []mpage
	prot guestmem.Prot
	dead bool
}

// model is the obvious implementation: an array of pages that point into byte arrays.
type model struct {
	form    form
	s       *guestmem.Space
	fds     [modelFiles]int
	mem     [modelFiles][]byte // what the files must hold
	pages   [modelPages]mpage
	regions map[int][2]int // number -> first page, pages
	next    int
	lists   []*mlist
	off     bool
}

func newModel(t testing.TB, f form, files [modelFiles]int) *model {
	m := &model{form: f, s: f.domain().NewSpace("vm"), fds: files, regions: map[int][2]int{}}
	for i, fd := range files {
		m.mem[i] = make([]byte, filePages*page)
		if err := unix.Ftruncate(fd, 0); err != nil { // begin with zeroes
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, filePages*page); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// span is a range of bytes, by list or by address.
type span struct {
	mem  guestmem.Memory
	list *mlist // nil: by address
	off  uint64
}

// where returns the place of every byte of a range, or false if the access must fail.
func (m *model) where(a span, n uint64, need guestmem.Prot) ([]*byte, bool) {
	if m.off || (a.list != nil && (a.list.dead || need&guestmem.ProtWrite&^a.list.prot != 0)) {
		return nil, false
	}
	var places []*byte
	for i := a.off; i < a.off+n; i++ {
		var pg mpage
		switch {
		case a.list == nil && i/page < modelPages:
			pg = m.pages[i/page]
		case a.list != nil && i/page < uint64(len(a.list.at)):
			pg = a.list.at[i/page]
			pg.prot = a.list.prot
		}
		// A list may be read whatever it was pinned for.
		if !pg.mapped || pg.file < 0 || (need&^pg.prot != 0 && (a.list == nil || need == guestmem.ProtWrite)) {
			return nil, false
		}
		places = append(places, &m.mem[pg.file][uint64(pg.page)*page+i%page])
	}
	if a.list != nil && a.off > uint64(len(a.list.at))*page {
		return nil, false
	}
	return places, true
}

func (m *model) span(t *rapid.T, name string) (span, uint64) {
	n := rapid.Uint64Range(0, 3*page+7).Draw(t, name+" bytes")
	if len(m.lists) == 0 || rapid.IntRange(0, 3).Draw(t, name+" by address") == 0 {
		return span{mem: m.s, off: rapid.Uint64Range(0, (modelPages+1)*page).Draw(t, name+" address")}, n
	}
	l := m.list(t, name)
	off := rapid.Uint64Range(0, l.p.Len()+8).Draw(t, name+" offset")
	if rapid.IntRange(0, 3).Draw(t, name+" must fit") > 0 && off <= l.p.Len() {
		n = min(n, l.p.Len()-off)
	}
	return span{mem: l.p, list: l, off: off}, n
}

// list draws a pinned list by its number, which reads better than its pointers.
func (m *model) list(t *rapid.T, name string) *mlist {
	return m.lists[rapid.IntRange(0, len(m.lists)-1).Draw(t, name+" list")]
}

// verdict compares success with what the model expects. A refused access is EFAULT.
func verdict(t *rapid.T, what string, err error, want bool) {
	t.Helper()
	if (err == nil) != want || (err != nil && !errors.Is(err, unix.EFAULT)) {
		t.Fatalf("%s: error is %v, the model expects success: %v", what, err, want)
	}
}

// start maps most of the memory, so that there is something to work with.
func (m *model) start(t *rapid.T) {
	for i, r := range [][3]int{{0, 10, 0}, {10, 2, 3}, {13, 6, 5}} { // first page, pages, first page of the file
		if err := m.s.Map(uint64(r[0])*page, uint64(r[1])*page, m.fds[i], uint64(r[2])*page, rw); err != nil {
			t.Fatal(err)
		}
		m.enter(r[0], r[1], mpage{mapped: true, file: i, page: r[2], prot: rw})
	}
}

// enter notes a new region; p is its first page.
func (m *model) enter(first, n int, p mpage) {
	m.next++
	m.regions[m.next] = [2]int{first, n}
	p.region = m.next
	for i := range n {
		m.pages[first+i] = p
		p.page++
	}
}

func (m *model) mapRegion(t *rapid.T) {
	first := rapid.IntRange(0, modelPages-1).Draw(t, "first")
	n := rapid.IntRange(1, modelPages-first).Draw(t, "pages")
	file := rapid.IntRange(-1, modelFiles-1).Draw(t, "file")
	start := rapid.IntRange(0, filePages).Draw(t, "start")
	prot := rapid.SampledFrom([]guestmem.Prot{rw, rw, guestmem.ProtRead, guestmem.ProtWrite}).Draw(t, "prot")
	fd, want := -1, error(nil)
	if file >= 0 {
		fd = m.fds[file]
		if start+n > filePages {
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

func (m *model) unmap(t *rapid.T) {
	if len(m.regions) == 0 {
		t.Skip("nothing mapped")
	}
	var ids []int
	for id := 1; id <= m.next; id++ {
		if _, ok := m.regions[id]; ok {
			ids = append(ids, id)
		}
	}
	id := rapid.SampledFrom(ids).Draw(t, "region")
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

// pageList draws stretches of adjacent pages. Mostly they can be pinned, or hardly any list would come about.
func (m *model) pageList(t *rapid.T) []int {
	anything := rapid.IntRange(0, 5).Draw(t, "any page") == 0
	good := func(i int) bool {
		return i < modelPages && m.pages[i].mapped && m.pages[i].file >= 0 && m.pages[i].prot == rw
	}
	var list []int
	for range rapid.IntRange(1, 4).Draw(t, "stretches") {
		i := rapid.IntRange(0, modelPages).Draw(t, "first")
		for range rapid.IntRange(1, 4).Draw(t, "length") {
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

func (m *model) pin(t *rapid.T) {
	list := m.pageList(t)
	prot := rapid.SampledFrom([]guestmem.Prot{rw, rw, guestmem.ProtRead}).Draw(t, "prot")
	l, addrs, want := &mlist{prot: prot}, []uint64{}, true
	for _, i := range list {
		addrs = append(addrs, uint64(i)*page)
		if i >= modelPages || !m.pages[i].mapped || m.pages[i].file < 0 || prot&^m.pages[i].prot != 0 {
			want = false
			continue
		}
		l.at = append(l.at, m.pages[i])
	}
	p, err := m.s.PinContiguous(addrs, prot)
	verdict(t, "pin", err, want)
	if err == nil {
		if p.Window() != (m.form == windowed && p.Runs() > 1) {
			t.Fatalf("list of %d runs: window %v, %v", p.Runs(), p.Window(), p.Scattered())
		}
		l.p = p
		m.lists = append(m.lists, l)
	}
}

func (m *model) copy(t *rapid.T) {
	dst, n := m.span(t, "dst")
	src, k := m.span(t, "src")
	n = min(n, k)
	to, ok1 := m.where(dst, n, guestmem.ProtWrite)
	from, ok2 := m.where(src, n, guestmem.ProtRead)
	if ok1 && ok2 {
		used := map[*byte]bool{}
		for _, b := range to {
			used[b] = true
		}
		for _, b := range from {
			if used[b] {
				t.Skip("ranges overlap")
			}
		}
		if len(used) != len(to) {
			t.Skip("destination overlaps itself")
		}
	}
	copyBytes := guestmem.Copy
	if rapid.Bool().Draw(t, "long") {
		copyBytes = guestmem.CopyLong
	}
	err := copyBytes(dst.mem, dst.off, src.mem, src.off, n)
	verdict(t, "copy", err, ok1 && ok2)
	var side *guestmem.CopyError
	if err != nil && (!errors.As(err, &side) || (side.Dst && ok1) || (!side.Dst && ok2)) {
		t.Fatalf("copy blames the wrong side: %v", err)
	}
	if err == nil {
		for i := range to {
			*to[i] = *from[i]
		}
	}
}

func (m *model) write(t *rapid.T) {
	dst, n := m.span(t, "dst")
	b := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, int(n))
	to, ok := m.where(dst, n, guestmem.ProtWrite)
	verdict(t, "write", guestmem.CopyIn(dst.mem, dst.off, b), ok)
	for i := range to {
		*to[i] = b[i]
	}
}

func (m *model) read(t *rapid.T) {
	src, n := m.span(t, "src")
	from, ok := m.where(src, n, guestmem.ProtRead)
	b := make([]byte, n)
	verdict(t, "read", guestmem.CopyOut(b, src.mem, src.off), ok)
	for i := range from {
		if b[i] != *from[i] {
			t.Fatalf("byte %d is %#x, want %#x", i, b[i], *from[i])
		}
	}
}

func (m *model) word(t *rapid.T) {
	if len(m.lists) == 0 {
		t.Skip("nothing pinned")
	}
	l := m.list(t, "word")
	off := rapid.Uint64Range(0, l.p.Len()/4).Draw(t, "word") * 4
	v := rapid.Uint32().Draw(t, "value")
	to, ok := m.where(span{list: l, off: off}, 4, guestmem.ProtWrite)
	verdict(t, "store", l.p.Store32(off, v), ok)
	for i := range to {
		*to[i] = byte(v >> (8 * i)) // tests run on little-endian machines
	}
	from, ok := m.where(span{list: l, off: off}, 4, guestmem.ProtRead)
	got, err := l.p.Load32(off)
	verdict(t, "load", err, ok)
	for i := range from {
		if *from[i] != byte(got>>(8*i)) {
			t.Fatalf("word is %#x", got)
		}
	}
}

// check compares every file with the model.
func (m *model) check(t *rapid.T) {
	got := make([]byte, filePages*page)
	for i, fd := range m.fds {
		if _, err := unix.Pread(fd, got, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, m.mem[i]) {
			t.Fatalf("file %d differs from the model", i)
		}
	}
	pinned := 0
	for _, l := range m.lists {
		pinned += len(l.at)
	}
	if st := m.s.Stats(); st.Regions != len(m.regions) || st.Pinned != pinned {
		t.Fatalf("stats are %+v, want %d regions and %d pages", st, len(m.regions), pinned)
	}
}

func TestASpaceAgreesWithAnArrayOfBytes(t *testing.T) {
	inBothForms(t, checkModel)
}

func checkModel(t *testing.T, f form) {
	var files [modelFiles]int
	for i := range files {
		files[i] = memfd(t, filePages*page)
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t, f, files)
		defer m.s.Close()
		m.start(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"":      m.check,
			"map":   m.mapRegion,
			"unmap": m.unmap,
			"pin":   m.pin,
			"pin2":  m.pin,
			"copy":  m.copy,
			"copy2": m.copy,
			"copy3": m.copy,
			"write": m.write,
			"read":  m.read,
			"word":  m.word,
			"switch": func(t *rapid.T) {
				if m.off = !m.off && rapid.IntRange(0, 3).Draw(t, "off") == 0; m.off == m.s.Enabled() {
					m.s.SetEnabled(!m.off)
				}
			},
			"release": func(t *rapid.T) {
				if len(m.lists) == 0 {
					t.Skip("nothing pinned")
				}
				i := rapid.IntRange(0, len(m.lists)-1).Draw(t, "list")
				m.lists[i].p.Release()
				m.lists = append(m.lists[:i], m.lists[i+1:]...)
			},
		})
	})
}

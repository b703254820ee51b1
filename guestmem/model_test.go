// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

const (
	modelPages = 24 // guest pages of the model
	modelFiles = 3
	filePages  = 12
	// noisyFile is rewritten by another thread all the time. Its bytes are unknown, and so is what is copied from them.
	noisyFile = 2
)

// player makes the choices of one game: rapid, or the bytes of a fuzzer.
type player interface {
	Helper()
	Fatalf(format string, args ...any)
	// choose returns a number from lo to hi.
	choose(lo, hi int, what string) int
}

// rapidPlayer lets rapid choose.
type rapidPlayer struct{ *rapid.T }

func (p rapidPlayer) choose(lo, hi int, what string) int {
	return rapid.IntRange(lo, hi).Draw(p.T, what)
}

// oneIn is true once in n times.
func oneIn(p player, n int, what string) bool { return p.choose(0, n-1, what) == 0 }

// cell is a byte of the model, or one of two that are not known.
type cell uint16

const (
	unknown cell = 256 // now
	noise   cell = 257 // ever: somebody rewrites it
)

// put has a cell hold what another held, or a byte.
func (c *cell) put(v cell) {
	if *c != noise {
		*c = min(v, unknown)
	}
}

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
	room bool // it can be filled again
}

// model is the obvious implementation: an array of pages that point into arrays of bytes.
type model struct {
	form    form
	dom     *domain
	s       *guestmem.Space
	fds     [modelFiles]int
	mem     [modelFiles][]cell // what the files must hold
	length  [modelFiles]int    // pages of each file that are there
	pages   [modelPages]mpage
	regions map[int][2]int // number -> first page, pages
	next    int
	lists   []*mlist
	off     bool
}

func newModel(t testing.TB, f form, files [modelFiles]int) *model {
	m := &model{form: f, dom: f.domain(), fds: files, regions: map[int][2]int{}}
	m.s = m.dom.NewSpace("vm")
	for i, fd := range files {
		m.mem[i] = make([]cell, filePages*page)
		m.length[i] = filePages
		if i == noisyFile {
			for j := range m.mem[i] {
				m.mem[i][j] = noise
			}
			continue
		}
		if err := unix.Ftruncate(fd, 0); err != nil { // begin with zeroes
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, filePages*page); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// makeFiles makes the files of a model, and a thread that rewrites the noisy one until the test ends.
func makeFiles(t testing.TB) (files [modelFiles]int) {
	for i := range files {
		files[i] = memfd(t, filePages*page)
	}
	ram := mapped(t, files[noisyFile], filePages*page)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				ram[i*97%len(ram)]++
			}
			if i%64 == 0 {
				time.Sleep(20 * time.Microsecond)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done }) // before the file is unmapped
	return files
}

// span is a range of bytes, by list or by address.
type span struct {
	mem  guestmem.Memory
	list *mlist // nil: by address
	off  uint64
}

// outcome is what the model says of an access.
type outcome int

const (
	refused outcome = iota // EFAULT, and nothing has changed
	faults                 // *FaultError: part of the memory is not there any more
	works
)

// where returns the place of every byte of a range that may be accessed.
func (m *model) where(a span, n uint64, need guestmem.Prot) ([]*cell, outcome) {
	if m.off || (a.list != nil && (a.list.dead || need&guestmem.ProtWrite&^a.list.prot != 0)) {
		return nil, refused
	}
	if a.list != nil && a.off > uint64(len(a.list.at))*page {
		return nil, refused
	}
	places, out := []*cell{}, works
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
			return nil, refused
		}
		if pg.page >= m.length[pg.file] {
			out = faults
		}
		places = append(places, &m.mem[pg.file][uint64(pg.page)*page+i%page])
	}
	return places, out
}

// forgetPlaces notes that a copy which faulted may have written any of its bytes, but those that are not there.
func forgetPlaces(places []*cell) {
	for _, c := range places {
		c.put(unknown)
	}
}

// lost says whether a list has a page that is not there.
func (m *model) lost(l *mlist) bool {
	return slices.ContainsFunc(l.at, func(pg mpage) bool { return pg.page >= m.length[pg.file] })
}

func (m *model) span(t player, name string) (span, uint64) {
	n := uint64(t.choose(0, 3*page+7, name+" bytes"))
	if len(m.lists) == 0 || oneIn(t, 4, name+" by address") {
		return span{mem: m.s, off: uint64(t.choose(0, (modelPages+1)*page, name+" address"))}, n
	}
	l := m.list(t, name)
	off := uint64(t.choose(0, int(l.p.Len()+8), name+" offset"))
	if !oneIn(t, 4, name+" may go beyond") && off <= l.p.Len() {
		n = min(n, l.p.Len()-off)
	}
	return span{mem: l.p, list: l, off: off}, n
}

// list chooses a pinned list by its number, which reads better than its pointers.
func (m *model) list(t player, name string) *mlist {
	return m.lists[t.choose(0, len(m.lists)-1, name+" list")]
}

// verdict compares the error of an access with what the model expects.
func (m *model) verdict(t player, what string, err error, want outcome) {
	t.Helper()
	var fault *guestmem.FaultError
	ok := err == nil
	switch want {
	case refused:
		ok = errors.Is(err, unix.EFAULT) && !errors.As(err, &fault)
	case faults:
		ok = errors.As(err, &fault) && fault.Owner == "vm" && fault.Offset < filePages*page &&
			slices.ContainsFunc(m.length[:], func(n int) bool { return fault.Offset >= uint64(n*page) })
	}
	if !ok {
		t.Fatalf("%s: error is %v, the model expects outcome %d", what, err, want)
	}
}

// start maps most of the memory, so that there is something to work with.
func (m *model) start(t player) {
	for i, r := range [][3]int{{0, 10, 0}, {10, 2, 3}, {13, 6, 5}} { // first page, pages, first page of the file
		if err := m.s.Map(uint64(r[0])*page, uint64(r[1])*page, m.fds[i], uint64(r[2])*page, rw); err != nil {
			t.Fatalf("start: %v", err)
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

// check compares every file with the model.
func (m *model) check(t player) {
	got := make([]byte, filePages*page)
	for i, fd := range m.fds {
		n, err := unix.Pread(fd, got, 0)
		if err != nil || n != m.length[i]*page {
			t.Fatalf("file %d: read %d bytes, %v", i, n, err)
		}
		for j, c := range m.mem[i][:n] {
			if c < unknown && cell(got[j]) != c {
				t.Fatalf("file %d differs from the model at %#x: %#x, want %#x", i, j, got[j], c)
			}
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

// free gives everything back.
func (m *model) free() {
	_ = m.s.Close()
	for _, l := range m.lists {
		l.p.Release()
	}
	_ = m.s.Close() // unmaps what was released since
}

// end gives everything back and checks that nothing is left.
func (m *model) end(t player) {
	m.free()
	if st := m.s.Stats(); st != (guestmem.Stats{}) {
		t.Fatalf("left over: %+v", st)
	}
	if files, pieces, bytes := m.dom.Used(); files != 0 || pieces != 0 || bytes != 0 {
		t.Fatalf("left over: %d files, %d mappings of windows, %#x bytes", files, pieces, bytes)
	}
}

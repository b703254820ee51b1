// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

// everyOther is a list of n pages no two of which are adjacent.
func everyOther(base uint64, n int) []uint64 {
	pages := make([]uint64, n)
	for i := range pages {
		pages[i] = base + uint64(2*i)*page
	}
	return pages
}

// runsApart is a list of n runs of length pages with holes between them.
func runsApart(n, length int) []uint64 {
	var pages []uint64
	for i := range n {
		pages = append(pages, sequence(uint64(i*(length+1))*page, length)...)
	}
	return pages
}

func TestAListGetsAWindowWhereItPays(t *testing.T) {
	d := &domain{guestmem.NewDomain(), windowed}
	g := newGuest(t, d, "vm1", 8<<20)
	const heap = 1 << 32
	if err := g.MapBytes(heap, make([]byte, 512*page), rw); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		pages []uint64
		says  string // "": it has a window
	}{
		{"1 MiB of single pages", everyOther(0, 256), ""},
		{"less than 1 MiB", everyOther(0, 255), "255 pages, windows are for 256 and more"},
		{"runs of 256 KiB", runsApart(8, 64), ""},
		{"longer runs", runsApart(8, 65), "runs of 65 pages on average"},
		{"not in a file", everyOther(heap, 256), "not made of pages of 4096 bytes"},
		{"partly not in a file", append(everyOther(0, 256), heap), "not made of pages of 4096 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := g.PinContiguous(c.pages, rw)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Release()
			why := p.Scattered()
			if p.Window() != (c.says == "") || (why == nil) != p.Window() {
				t.Fatalf("window %v, %v", p.Window(), why)
			}
			if why != nil && (!errors.Is(why, guestmem.ErrScattered) || !strings.Contains(why.Error(), c.says)) {
				t.Fatalf("reason %q does not say %q", why, c.says)
			}
			if n := g.Stats().WindowsDenied; n != 0 {
				t.Fatalf("%d windows denied that nobody wanted", n)
			}
		})
	}
}

func TestAListSaysWhetherItIsOnePiece(t *testing.T) {
	g := newGuest(t, windowed.domain(), "vm1", 8*page)
	for name, c := range map[string]struct {
		pin   func([]uint64, guestmem.Prot) (*guestmem.Pages, error)
		pages []uint64
		want  error
	}{
		"adjacent":           {g.Pin, sequence(0, 4), nil},
		"scattered":          {g.Pin, everyOther(0, 4), guestmem.ErrScattered},
		"adjacent anyway":    {g.PinContiguous, sequence(0, 4), nil},
		"through its window": {g.PinContiguous, everyOther(0, 4), nil},
	} {
		p, err := c.pin(c.pages, rw)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Scattered(); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		p.Release()
	}
}

// The list shows pages of a file in another order, one of them twice.
func TestAWindowIsTheGuestsOwnMemory(t *testing.T) {
	g := newGuest(t, windowed.domain(), "vm1", 16*page)
	list := []uint64{7 * page, 3 * page, 4 * page, 3 * page, 15 * page, 0}
	p := g.pin(t, list)
	for i, addr := range list {
		// the guest writes, we read
		g.ram[addr+100] = byte(i + 1)
		var b [1]byte
		if err := p.Read(uint64(i)*page+100, b[:]); err != nil || b[0] != byte(i+1) {
			t.Fatalf("page %d holds %d, %v", i, b[0], err)
		}
		// we write, the guest reads
		if err := p.Write(uint64(i)*page+200, []byte{byte(i + 101)}); err != nil || g.ram[addr+200] != byte(i+101) {
			t.Fatalf("page %d: the guest sees %d, %v", i, g.ram[addr+200], err)
		}
	}
	// what spans all pages
	want := make([]byte, len(list)*page)
	if err := p.Read(0, want); err != nil {
		t.Fatal(err)
	}
	for i, addr := range list {
		if !bytes.Equal(want[i*page:(i+1)*page], g.ram[addr:addr+page]) {
			t.Fatalf("page %d differs", i)
		}
	}
}

// waitMappings waits until a file has want mappings.
func waitMappings(t *testing.T, fd, want int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); mappings(t, fd) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the file has %d mappings, want %d", mappings(t, fd), want)
		}
	}
}

func TestAWindowGoesWithItsList(t *testing.T) {
	g := newGuest(t, windowed.domain(), "vm1", 64*page)
	const both = 2 // ours, and the guest's own
	for _, n := range []int{2, 8, 32} {
		p, err := g.PinContiguous(everyOther(0, n), rw)
		if err != nil {
			t.Fatal(err)
		}
		if got := mappings(t, g.fd); got != both+n || g.Stats().Windows != 1 {
			t.Fatalf("%d mappings with a window of %d pieces, %+v", got, n, g.Stats())
		}
		p.Release()
		waitMappings(t, g.fd, both)
	}
	if st := g.Stats(); st.Windows != 0 || st.Lists != 0 || st.Pinned != 0 {
		t.Fatalf("left over: %+v", st)
	}
}

func TestCloseReleasesTheWindowsThatWereGivenBack(t *testing.T) {
	g := newGuest(t, windowed.domain(), "vm1", 64*page)
	early, late := g.pin(t, everyOther(0, 8)), g.pin(t, everyOther(page, 4))
	early.Release()
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if n := mappings(t, g.fd); n != 2+4 {
		t.Fatalf("%d mappings right after Close, want the guest's, ours and the window that is held", n)
	}
	late.Release()
	waitMappings(t, g.fd, 1)
}

func TestAGuestThatTakesAllWindowsLeavesSomeToTheOthers(t *testing.T) {
	d := &domain{guestmem.NewDomainWith(guestmem.Windows{Budget: 64, MinPages: 1, MaxRun: 1}), windowed}
	greedy, other := newGuest(t, d, "greedy", 256*page), newGuest(t, d, "other", 256*page)
	var lists []*guestmem.Pages
	take := func(g *guest) (windows int) {
		for {
			p, err := g.PinContiguous(everyOther(0, 8), rw)
			if err != nil {
				t.Fatal(err)
			}
			lists = append(lists, p)
			if !p.Window() {
				if err := p.Scattered(); !errors.Is(err, guestmem.ErrMapCount) || !errors.Is(err, unix.ENOMEM) ||
					!strings.Contains(err.Error(), "vm.max_map_count") {
					t.Fatalf("reason is %v", err)
				}
				if err := p.Write(3*page, []byte("as a list")); err != nil {
					t.Fatal(err)
				}
				return windows
			}
			windows++
		}
	}
	defer func() {
		for _, p := range lists {
			p.Release()
		}
	}()

	first, second := take(greedy), take(other)

	if first != 4 || second != 2 {
		t.Fatalf("the first guest got %d windows of 8 mappings of 64, the second %d; want 4 and 2", first, second)
	}
	if a, b := greedy.Stats().WindowsDenied, other.Stats().WindowsDenied; a != 1 || b != 1 {
		t.Fatalf("%d and %d windows were counted as denied, want 1 and 1", a, b)
	}
	// One that is given back can be had again at once.
	lists[first+1].Release()
	if p := other.pin(t, everyOther(0, 8)); !p.Window() {
		t.Fatal(p.Scattered())
	}
	if n := other.Stats().WindowsDenied; n != 1 {
		t.Fatalf("%d windows denied", n)
	}
}

// mapCount is the number of mappings of this process.
func mapCount(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// A Go program that has no mapping left dies, at latest with the next stack or heap arena. Guests who do all they can
// to use them up are stopped at the budget, which is half of them at most.
func TestGuestsCannotUseUpTheMappingsOfTheProcess(t *testing.T) {
	d := &domain{guestmem.NewDomain(), windowed}
	limit, budget := guestmem.MaxMapCount(), guestmem.DefaultWindows().Budget
	before := mapCount(t)
	var denied uint64
	for i := range 6 {
		g := newGuest(t, d, string(rune('a'+i)), 16<<20)
		for n := 4096; n >= 256; n /= 2 { // whatever still fits
			for range 40 {
				p, err := g.PinContiguous(shuffled(0, 4096)[:n], rw)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.Release)
				if !p.Window() {
					break
				}
			}
		}
		// Holes punched into the file split no mapping.
		for off := int64(0); off < 16<<20; off += 8 * page {
			const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
			if err := unix.Fallocate(g.fd, mode, off, page); err != nil {
				t.Fatal(err)
			}
		}
		denied += g.Stats().WindowsDenied
	}
	used := mapCount(t) - before
	t.Logf("guests took %d of %d mappings, %d windows denied", used, limit, denied)
	if used > budget+100 || budget > limit/2 {
		t.Fatalf("guests took %d of %d mappings, their budget is %d", used, limit, budget)
	}
	if used < budget*2/3 || denied == 0 {
		t.Fatalf("guests took %d mappings of a budget of %d and %d windows were denied: nothing was tested", used, budget, denied)
	}
}

func TestAWindowIsNotInCoreDumps(t *testing.T) {
	g := newGuest(t, windowed.domain(), "vm1", 16*page)
	g.pin(t, everyOther(0, 8))
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	mine := false
	for line := range strings.Lines(string(smaps)) {
		if strings.Contains(line, "/memfd:guest-ram") {
			mine = strings.Fields(line)[4] == inode(t, g.fd)
		}
		if mine && strings.HasPrefix(line, "VmFlags:") {
			mine = false
			if strings.Contains(line, " dd") {
				found++
			}
		}
	}
	if found != 1+8 {
		t.Fatalf("%d mappings of the file are not dumped, want the whole file and 8 pieces", found)
	}
}

// faultsOfThread is the number of page faults that the calling thread has taken.
func faultsOfThread(t *testing.T) int64 {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return u.Minflt + u.Majflt
}

func TestThePageFaultsOfAWindowAreTakenWhenItIsMade(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const n = 1024
	g := newGuest(t, windowed.domain(), "vm1", 2*n*page)
	p := g.pin(t, everyOther(0, n))
	b := make([]byte, n*page)
	// The test's own buffer, and the race detector's notes on it, take theirs here.
	if err := errors.Join(g.Read(0, b), g.Write(0, b)); err != nil {
		t.Fatal(err)
	}
	before := faultsOfThread(t)
	if err := guestmem.CopyOut(b, p, 0); err != nil {
		t.Fatal(err)
	}
	if err := guestmem.CopyIn(p, 0, b); err != nil {
		t.Fatal(err)
	}
	if faults := faultsOfThread(t) - before; faults > n/8 {
		t.Fatalf("the data path took %d page faults in a window of %d pages", faults, n)
	}
}

func TestAWindowOnMemoryThatIsGoneAlreadyFaultsOnAccessOnly(t *testing.T) {
	g := newGuest(t, windowed.domain(), "bad", 64*page)
	if err := unix.Ftruncate(g.fd, 8*page); err != nil {
		t.Fatal(err)
	}
	p := g.pin(t, []uint64{40 * page, 2 * page, 33 * page})
	if err := guestmem.CopyIn(p, page, []byte("there")); err != nil {
		t.Fatal(err)
	}
	checkFault(t, g, guestmem.CopyIn(p, 2*page, []byte("gone")), 33*page)
	checkFault(t, g, guestmem.CopyOut(make([]byte, 8), p, 8), 40*page)
}

func TestAWindowThatSpansFilesAndRegionsNamesTheRightOneInAFault(t *testing.T) {
	s := windowed.domain().NewSpace("vm1")
	defer s.Close()
	one, two := memfd(t, 4*page), memfd(t, 4*page)
	for _, r := range []struct {
		addr uint64
		fd   int
	}{{0, one}, {1 << 30, two}, {2 << 30, one}} {
		if err := s.Map(r.addr, 4*page, r.fd, 0, rw); err != nil {
			t.Fatal(err)
		}
	}
	p, err := s.PinContiguous([]uint64{3 * page, 1<<30 + 2*page, 2<<30 + page}, rw)
	if err != nil || !p.Window() {
		t.Fatal(err, p.Scattered())
	}
	defer p.Release()
	if err := unix.Ftruncate(two, 2*page); err != nil {
		t.Fatal(err)
	}
	var fault *guestmem.FaultError
	if err := guestmem.CopyIn(p, page+16, []byte("x")); !errors.As(err, &fault) || fault.Addr != 1<<30+2*page+16 ||
		fault.Offset != 2*page+16 || !strings.Contains(fault.Region, "region 0x40000000+0x4000") ||
		!strings.Contains(fault.Region, inode(t, two)) {
		t.Fatalf("error is %v", err)
	}
	for _, off := range []uint64{0, 2 * page} {
		if err := guestmem.CopyIn(p, off, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package guestmem

// layout says where in this process the pages of a list lie. It is fixed when the list is made.
type layout struct {
	// At most one of the two is there: neither if all pages are adjacent.
	runs []run // several pages per run on average
	flat []loc // one entry per page, when most runs are one page

	length uint64 // of the list, in bytes
	nruns  int

	maps  []*mapping // that a loc names by number
	bases []hostPtr  // where each of them starts
}

// loc says where a page is: the number of a mapping in the upper 16 bits (maxFiles fits), an offset in it below
// (maxSpaceBytes fits). It holds no pointer, so that the garbage collector does not look into page lists.
type loc uint64

const locShift = 48

// run is a number of pages adjacent in one mapping; it ends where the next one begins.
type run struct {
	start uint64 // offset in the list
	at    loc
}

// newLayout chooses the smallest form for a list. What it needs of memory it takes from where, if that is not nil.
func newLayout(locs []loc, maps []*mapping, where *room) layout {
	l := layout{length: uint64(len(locs)) * PageSize, nruns: 1, maps: maps, bases: where.basesFor(len(maps))}
	for _, m := range maps {
		l.bases = append(l.bases, m.base)
	}
	for i := 1; i < len(locs); i++ {
		if locs[i] != locs[i-1]+PageSize {
			l.nruns++
		}
	}
	switch {
	case l.nruns == 1:
	case l.nruns > len(locs)/2:
		l.flat = locs
	default:
		l.runs = where.runsFor(l.nruns)
		for i, at := range locs {
			if i == 0 || at != locs[i-1]+PageSize {
				l.runs = append(l.runs, run{uint64(i) * PageSize, at})
			}
		}
	}
	return l
}

// host returns the host address of a loc.
func (l *layout) host(at loc) hostPtr {
	return l.bases[at>>locShift].add(uint64(at & (1<<locShift - 1)))
}

// piece returns the host address of an offset in a list of several runs, and how many bytes follow it there without a
// gap. hint is the number of the run that the last call used, -1 at first.
func (l *layout) piece(off uint64, hint *int) (hostPtr, uint64) {
	if l.flat != nil {
		in := off % PageSize
		return l.host(l.flat[off/PageSize]).add(in), PageSize - in
	}
	i := *hint
	if i < 0 {
		i = l.runOf(off)
	} else if i+1 < len(l.runs) && l.runs[i+1].start <= off {
		i++ // whoever walks goes from one run to the next
	}
	*hint = i
	r := l.runs[i]
	return l.host(r.at).add(off - r.start), l.endOf(i) - off
}

// endOf returns the offset at which a run ends.
func (l *layout) endOf(i int) uint64 {
	if i+1 < len(l.runs) {
		return l.runs[i+1].start
	}
	return l.length
}

// runOf returns the number of the run that contains an offset.
func (l *layout) runOf(off uint64) int {
	lo, hi := 0, len(l.runs)
	for lo+1 < hi {
		if mid := int(uint(lo+hi) / 2); l.runs[mid].start <= off {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// find returns the mapping in which the byte at an offset of a list of several runs lies, and its offset there.
func (l *layout) find(off uint64) (*mapping, uint64) {
	var at loc
	if l.flat != nil {
		at = l.flat[off/PageSize] + loc(off%PageSize)
	} else {
		r := l.runs[l.runOf(off)]
		at = r.at + loc(off-r.start)
	}
	return l.maps[at>>locShift], uint64(at & (1<<locShift - 1))
}

// eachRun calls f for the runs of a list of several, in order, with all adjacent pages in one call, until it fails.
func (l *layout) eachRun(f func(off uint64, host hostPtr, n uint64) error) error {
	for i, r := range l.runs {
		if err := f(r.start, l.host(r.at), l.endOf(i)-r.start); err != nil {
			return err
		}
	}
	for i := 0; i < len(l.flat); {
		n := 1
		for i+n < len(l.flat) && l.flat[i+n] == l.flat[i+n-1]+PageSize {
			n++
		}
		if err := f(uint64(i)*PageSize, l.host(l.flat[i]), uint64(n)*PageSize); err != nil {
			return err
		}
		i += n
	}
	return nil
}

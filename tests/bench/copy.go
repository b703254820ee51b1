// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// memoryRun is a piece of a guest's memory file, in bytes.
type memoryRun struct{ Offset, Len int }

// memoryFile is the registered memory of one end: the file that holds it and the runs in it, in the order of the
// registration.
type memoryFile struct {
	Path string
	Size int
	Runs []memoryRun
}

// copyRequest asks for copies of messages between the memories of two guests, as the daemon's worker makes them.
type copyRequest struct {
	From, To    memoryFile
	Size, Slots int
	Time        time.Duration
	// SideBySide has the pages mapped once more in the order of the registration, so that a message is one piece.
	SideBySide bool
}

// memoryLayout returns where the registered memory of the first pair lies.
func memoryLayout(c *child, _ struct{}) (q copyRequest, err error) {
	p := c.guests[0]
	q.From, err = p.a.layout()
	if err != nil {
		return q, err
	}
	q.To, err = p.b.layout()
	return q, err
}

func (e *end) layout() (memoryFile, error) {
	f := memoryFile{Path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), e.m.RAM.FD()), Size: len(e.m.RAM.All())}
	for _, addr := range e.mr.Pages() {
		at := -1
		for _, r := range e.m.RAM.Regions() {
			if addr >= r.Addr && addr-r.Addr < r.Size {
				at = int(addr - r.Addr + r.Offset)
			}
		}
		if at < 0 {
			return f, fmt.Errorf("page %#x is in no region", addr)
		}
		if n := len(f.Runs); n > 0 && f.Runs[n-1].Offset+f.Runs[n-1].Len == at {
			f.Runs[n-1].Len += pageSize
			continue
		}
		f.Runs = append(f.Runs, memoryRun{at, pageSize})
	}
	return f, nil
}

const pageSize = 4096

// memcpy copies messages of one place after the other for a while and returns what one takes: one copy where both sides
// are contiguous, else one for each piece that is.
func memcpy(_ *child, q copyRequest) (a flowAnswer, err error) {
	var mem [2][]byte
	for i, f := range []*memoryFile{&q.From, &q.To} {
		if mem[i], err = q.mapMemory(f); err != nil {
			return a, err
		}
		defer unix.Munmap(mem[i])
	}
	pieces, err := q.pieces(mem[0], mem[1])
	if err != nil {
		return a, err
	}
	all := func() {
		for _, p := range pieces {
			copy(p.to, p.from)
		}
	}
	all() // the pages are mapped
	begin, n := time.Now(), 0
	for time.Since(begin) < q.Time {
		all()
		n += q.Slots
	}
	a.PerMessage = float64(time.Since(begin).Nanoseconds()) / float64(n)
	return a, nil
}

// mapMemory maps a memory and makes its runs offsets in what it returns.
func (q copyRequest) mapMemory(f *memoryFile) ([]byte, error) {
	if !q.SideBySide {
		return mapFile(f.Path, f.Size)
	}
	b, err := mapRuns(*f)
	f.Runs = []memoryRun{{0, len(b)}}
	return b, err
}

// piece is what one copy moves.
type piece struct{ from, to []byte }

// pieces cuts all messages into copies.
func (q copyRequest) pieces(from, to []byte) ([]piece, error) {
	var all []piece
	fw, tw := runs{slices.Clone(q.From.Runs)}, runs{slices.Clone(q.To.Runs)}
	for range q.Slots {
		for left := q.Size; left > 0; {
			n := min(left, fw.len(), tw.len())
			if n == 0 {
				return nil, errors.New("the memory is shorter than the messages")
			}
			f, t := fw.take(n), tw.take(n)
			all = append(all, piece{from[f : f+n], to[t : t+n]})
			left -= n
		}
	}
	return all, nil
}

// runs walks through a list of runs.
type runs struct{ list []memoryRun }

func (r *runs) len() int {
	if len(r.list) == 0 {
		return 0
	}
	return r.list[0].Len
}

// take returns where the next n bytes lie.
func (r *runs) take(n int) int {
	first := &r.list[0]
	at := first.Offset
	first.Offset += n
	if first.Len -= n; first.Len == 0 {
		r.list = r.list[1:]
	}
	return at
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/tests/bench/bareloop"
	"github.com/pvrdmad/pvrdmad/tests/bench/poster"
)

// sharedMemory is a bound's memory: the guests' process makes it and the far side maps it too.
type sharedMemory struct {
	mem   []byte
	view  bareloop.View
	lanes []poster.Lane
}

// stop ends the far side's loop.
func (s *sharedMemory) stop() { ram.Store32(s.view.Control, 0, 1) }

// makeShared makes the memory of a bare loop, instead of one made before, and returns the path by which others open it.
func makeShared(c *child, shape bareloop.Shape) (string, error) {
	fd, err := unix.MemfdCreate("bare-loop", unix.MFD_CLOEXEC)
	if err != nil {
		return "", err
	}
	if err := unix.Ftruncate(fd, int64(shape.Size())); err != nil {
		return "", err
	}
	s := &sharedMemory{}
	if s.mem, err = unix.Mmap(fd, 0, shape.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return "", err
	}
	s.view = shape.View(s.mem)
	cq := poster.NewCQ(s.view.CQState, s.view.CQ)
	for i := range shape.Queues {
		s.lanes = append(s.lanes, poster.Lane{
			Send: poster.NewSend(s.view.Doorbell, uint32(i), s.view.States[i], s.view.Rings[i]), CQ: cq,
			From: poster.Piece{Addr: bareloop.SourceAddr, Len: uint32(shape.Payload), Key: bareloop.SourceKey},
			To:   poster.Piece{Addr: bareloop.TargetAddr, Len: uint32(shape.Payload), Key: bareloop.TargetKey},
		})
	}
	c.shared = s
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), nil
}

// bareRequest names a bare loop's memory.
type bareRequest struct {
	Path  string
	Shape bareloop.Shape
}

// bareServed is what the far side of a bare loop did.
type bareServed struct{ Served uint64 }

// bareWork is the worker's side of a bare loop, until the guests' side ends it.
func bareWork(_ *child, q bareRequest) (a bareServed, err error) {
	mem, err := mapFile(q.Path, q.Shape.Size())
	if err != nil {
		return a, err
	}
	defer unix.Munmap(mem)
	w, err := bareloop.NewWorker(q.Shape, mem)
	if err != nil {
		return a, err
	}
	ram.Store32(q.Shape.View(mem).Control, 0, 0)
	w.Run()
	if w.Refused != 0 {
		return a, fmt.Errorf("the bare loop refused request %d", w.Served)
	}
	return bareServed{w.Served}, nil
}

func mapFile(path string, size int) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	return unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// Places of the two words that ping and pong pass back and forth, each in a cache line of its own: in the control page,
// whose first word ends the far side.
const (
	pingAt = 512
	pongAt = 1024
)

// pingRequest says how long to pass words back and forth.
type pingRequest struct{ Time time.Duration }

// ping passes one cache line there and one back, for a while, and returns the median of the round trips.
func ping(c *child, q pingRequest) (flowAnswer, error) {
	s := c.shared
	defer s.stop()
	f := trips{control: s.view.Control}
	if err := f.run(q.Time / 10); err != nil { // until the other side is there
		return flowAnswer{}, err
	}
	f.times = f.times[:0]
	if err := f.run(q.Time); err != nil {
		return flowAnswer{}, err
	}
	return f.answer(), nil
}

// trips are round trips and the times they took.
type trips struct {
	control []byte
	next    uint32
	times   []float64
}

func (f *trips) run(d time.Duration) error {
	const most = 1 << 20
	if f.times == nil {
		f.times = make([]float64, 0, most)
		f.next = ram.Load32(f.control, pongAt)
	}
	begin := time.Now()
	last := time.Duration(0)
	for last < d && len(f.times) < most {
		f.next++
		ram.Store32(f.control, pingAt, f.next)
		for i := 0; ram.Load32(f.control, pongAt) != f.next; i++ {
			if i > 1<<30 {
				return fmt.Errorf("nobody answers word %d", f.next)
			}
		}
		now := time.Since(begin)
		f.times = append(f.times, float64(now-last))
		last = now
	}
	return nil
}

func (f *trips) answer() flowAnswer { return flowAnswer{P50: spreadOf(f.times).Median} }

// pong answers until the other side ends it.
func pong(_ *child, q bareRequest) (struct{}, error) {
	mem, err := mapFile(q.Path, q.Shape.Size())
	if err != nil {
		return struct{}{}, err
	}
	defer unix.Munmap(mem)
	control := q.Shape.View(mem).Control
	ram.Store32(control, 0, 0)
	last := ram.Load32(control, pongAt)
	for ram.Load32(control, 0) == 0 {
		if v := ram.Load32(control, pingAt); v != last {
			last = v
			ram.Store32(control, pongAt, v)
		}
	}
	runtime.KeepAlive(mem)
	return struct{}{}, nil
}

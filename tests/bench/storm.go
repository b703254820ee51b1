// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// storms are what a guest can do to its neighbours, and fair forms of it, as operations that go on until they are stopped.
// Each returns how often it did it.
func storms() map[string]func(c *child, goOn func() bool) (uint64, error) {
	type storm = func(c *child, goOn func() bool) (uint64, error)
	messages := func(m messageStorm) storm { return m.run }
	return map[string]storm{
		"nothing":            func(*child, func() bool) (uint64, error) { return 0, nil },
		"huge messages":      messages(messageStorm{depth: 2, active: 1}),
		"messages of 64 KiB": messages(messageStorm{size: 64 << 10, depth: smallDepth, active: 1}),
		"1000 queue pairs":   messages(messageStorm{size: smallSize, depth: 2}),
		"32 queue pairs":     messages(messageStorm{size: smallSize, depth: smallDepth, active: 32}),
		"doorbells":          stormOfDoorbells,
		"stores to memory":   stormOfStores,
		"bad commands":       stormOfCommands,
		"maps of memory":     stormOfMaps,
		"bare round trips":   stormOfRoundTrips,
	}
}

// stormLimit is how long a storm lasts if nobody stops it.
const stormLimit = 20 * time.Second

// stormRequest names a storm.
type stormRequest struct{ Name string }

// stormAnswer says how much of it there was.
type stormAnswer struct{ Times, PerSecond float64 }

// runStorm runs a storm until this process gets a signal.
func runStorm(c *child, q stormRequest) (stormAnswer, error) {
	f := storms()[q.Name]
	if f == nil {
		return stormAnswer{}, fmt.Errorf("no storm %q", q.Name)
	}
	var over atomic.Bool
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGUSR1)
	defer signal.Stop(stop)
	go func() {
		<-stop
		over.Store(true)
	}()
	defer func() { stop <- unix.SIGUSR1 }() // if it was not stopped
	began := time.Now()
	n, err := f(c, func() bool { return !over.Load() && time.Since(began) < stormLimit })
	return stormAnswer{float64(n), float64(n) / time.Since(began).Seconds()}, err
}

// nap is how long a storm of messages sleeps between two looks, so that it leaves the processor to its victim.
const nap = 100 * time.Microsecond

// messageStorm keeps messages under way, so many of some size (0: of all memory) on each of so many connections (0: all). They
// walk through all memory, so that little of it is in a cache.
type messageStorm struct{ size, depth, active int }

func (m messageStorm) run(c *child, goOn func() bool) (n uint64, err error) {
	all := c.guests[0].a.mr.Len
	lanes := c.guests[0].lanes
	lanes = lanes[:cmp.Or(m.active, len(lanes))]
	size := cmp.Or(m.size, all)
	done := uint64(0)
	for going := true; going || done < n; going = going && goOn() {
		for i := range lanes {
			l, before := &lanes[i], n
			for going && l.Send.Pending() < m.depth {
				at := n * uint64(size) % uint64(all/size*size)
				from, to := l.From, l.To
				from.Addr, from.Len = from.Addr+at, uint32(size)
				to.Addr, to.Len = to.Addr+at, uint32(size)
				l.Send.Write(n, from, to)
				n++
			}
			if n != before {
				l.Send.Ring()
			}
		}
		got, _, err := lanes[0].CQ.Poll(cqe)
		if err != nil {
			return n, err
		}
		done += uint64(got)
		ts := unix.NsecToTimespec(int64(nap))
		_ = unix.Nanosleep(&ts, nil) // a signal may end it early
	}
	return n, nil
}

// stormOfDoorbells stores words into a doorbell page: those of a queue pair that has nothing to do, of a completion queue,
// and one that means nothing.
func stormOfDoorbells(c *child, goOn func() bool) (n uint64, err error) {
	e := c.guests[0].a
	page := e.doorbell()
	for goOn() {
		for range 100 {
			ram.Store32(page, abi.UARQPOffset, e.qps[0].Handle|abi.UARQPSend|abi.UARQPRecv)
			ram.Store32(page, abi.UARCQOffset, e.cq.Handle|abi.UARCQArm)
			ram.Store32(page, abi.UARSRQOffset, 1)
			n += 3
		}
	}
	return n, nil
}

// stormOfStores is a storm of doorbells into memory that nobody looks at.
func stormOfStores(_ *child, goOn func() bool) (n uint64, err error) {
	page := make([]byte, ram.PageSize)
	for goOn() {
		for i := range 100 {
			ram.Store32(page, abi.UARQPOffset, uint32(i))
			ram.Store32(page, abi.UARCQOffset, uint32(i))
			ram.Store32(page, abi.UARSRQOffset, uint32(i))
			n += 3
		}
	}
	return n, nil
}

// stormOfRoundTrips is a storm of commands to somebody who does nothing for them.
func stormOfRoundTrips(c *child, goOn func() bool) (n uint64, err error) {
	for ; goOn(); n++ {
		if _, err := c.doors.bare.command(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// stormOfCommands gives commands that fail: one that does not exist, and one for an object that does not.
func stormOfCommands(c *child, goOn func() bool) (n uint64, err error) {
	e := c.guests[0].a
	bad := e.m.L.New("pvrdma_cmd_destroy_cq")
	bad.Set("hdr.cmd", uint64(e.m.L.Const("PVRDMA_CMD_DESTROY_CQ"))).Set("cq_handle", 0xffffff)
	for ; goOn(); n++ {
		if n%2 == 0 {
			_, err = e.m.Dev.Post(make([]byte, 64), "a command that does not exist", 1)
		} else {
			_, err = e.m.Dev.Post(bad.Bytes(), "DESTROY_CQ", 1)
		}
		if err == nil {
			return n, fmt.Errorf("bad command %d succeeded", n)
		}
	}
	return n, nil
}

// stormOfMaps announces memory and takes it back.
func stormOfMaps(c *child, goOn func() bool) (n uint64, err error) {
	const at, size = 1 << 40, 64 << 20
	m := c.guests[0].a.m
	for ; goOn(); n++ {
		err := m.Func.MapDMA(vfio.DMAMap{Addr: at, Size: size, FD: m.RAM.FD(), Flags: vfio.DMARead | vfio.DMAWrite})
		if err == nil {
			err = m.Func.UnmapDMA(at, size)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

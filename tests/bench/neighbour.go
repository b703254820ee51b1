// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The neighbour's connections and memory.
const (
	neighbourQueues = 1000
	neighbourBytes  = 1 << 30
	neighbourShort  = 64 << 20
)

// neighbourly is what a victim may lose beside a neighbour: less than a tenth.
const neighbourly = 1.1

// storm is a storm and what the victim's figures beside it are compared with: the same load of the machine in a form that
// the daemon has nothing to do with, or of the worker in a form that is nobody's fault; or nothing.
type storm struct{ name, fair string }

// measureNeighbours measures what guests feel of a neighbour that does its worst.
//
// Victim and neighbour share a processor here, as they would not in machines of their own. So a message during which the
// victim lost its processor counts for nothing, and its rate is that of its own processor time: while it waits for a
// completion it polls, and while it does not run that clock stands still.
func measureNeighbours(b *bench) (all []result, err error) {
	w, err := b.openNeighbours()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.storm.stop(), w.answer.stop(), w.close()) }()
	for _, s := range []storm{
		{"bad commands", "bare round trips"},
		{"maps of memory", "bare round trips"},
		{"doorbells", "stores to memory"},
		{"huge messages", "messages of 64 KiB"},
		{"1000 queue pairs", "32 queue pairs"},
		{"messages of 64 KiB", "nothing"},
		{"32 queue pairs", "nothing"},
	} {
		a := aim{AtMost: neighbourly}
		if s.fair == "nothing" { // a neighbour whose work the worker does has a share of it, hostile or not
			a = aim{}
		}
		r, err := w.beside(s, a)
		all = append(all, r...)
		if err != nil {
			return all, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return all, nil
}

// neighbours are a victim, in the world's guests' process, and a neighbour in a process of its own.
type neighbours struct {
	*world
	// storm is the neighbour, answer whom it talks to instead of the daemon.
	storm, answer *process
}

func (b *bench) openNeighbours() (n *neighbours, err error) {
	n = &neighbours{world: &world{bench: b}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.storm.stop(), n.answer.stop(), n.close())
		}
	}()
	if n.d, err = startDaemon(b, daemonOptions{Guests: 4}); err != nil {
		return nil, err
	}
	if err = n.d.pinOthers(b.guestCPU); err != nil {
		return nil, err
	}
	if n.guest, err = startProcess(roleGuest, b.guestCPU); err != nil {
		return nil, err
	}
	if n.storm, err = startProcess(roleGuest, b.guestCPU); err != nil {
		return nil, err
	}
	sockets := n.d.sockets()
	victim := worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots}
	if err = n.guest.call("boot", bootRequest{Sockets: sockets[:2], Options: victim}, nil); err != nil {
		return nil, err
	}
	o := worldOptions{Pairs: 1, Queues: neighbourQueues, Depth: smallDepth, Bytes: neighbourBytes}
	if b.short {
		o.Bytes = neighbourShort
	}
	if err = n.storm.call("boot", bootRequest{Sockets: sockets[2:], First: 2, Options: o}, nil); err != nil {
		return nil, err
	}
	if n.answer, err = startProcess(roleFar, b.guestCPU); err != nil {
		return nil, err
	}
	var bare answerRequest
	if err = n.storm.call("bare door", nil, &bare); err != nil {
		return nil, err
	}
	return n, n.answer.begin("answer", bare)
}

// victimAnswer is what the victim felt, in ns.
type victimAnswer struct{ P50, P99, PerMessage float64 }

// during measures the victim during a storm.
func (n *neighbours) during(name string) (v victimAnswer, s stormAnswer, err error) {
	if err := n.storm.begin("storm", stormRequest{name}); err != nil {
		return v, s, err
	}
	time.Sleep(5 * time.Millisecond) // it has begun
	err = n.guest.call("victim", victimRequest{n.turn}, &v)
	_ = n.storm.cmd.Process.Signal(unix.SIGUSR1)
	return v, s, errors.Join(err, n.storm.end(&s))
}

// beside lets a storm and what it is compared with take turns.
func (n *neighbours) beside(s storm, a aim) ([]result, error) {
	var got, fair [3][]float64
	var rates []float64
	take := func(name string, to *[3][]float64) error {
		v, st, err := n.during(name)
		for i, x := range []float64{v.P50, v.P99, v.PerMessage} {
			to[i] = append(to[i], x)
		}
		if to == &got {
			rates = append(rates, st.PerSecond)
		}
		return err
	}
	for round := range n.rounds {
		order := []func() error{
			func() error { return take(s.fair, &fair) }, func() error { return take(s.name, &got) },
		}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, f := range order {
			if err := f(); err != nil {
				return nil, err
			}
		}
	}
	bound := "beside " + s.fair
	if s.fair == "nothing" {
		bound = "alone"
	}
	all := []result{{Name: "neighbour: " + s.name, Unit: "/s", Value: spreadOf(rates), Rounds: len(rates)}}
	for i, name := range []string{"p50", "p99", "time of a message, 32 under way"} {
		r := judge("  victim's "+name, "ns", bound, got[i], fair[i], a)
		if i == 0 {
			r = judge("  victim's "+name, "ns", bound, got[i], fair[i], aim{})
		}
		all = append(all, r)
	}
	return all, nil
}

// victimRequest says how long to measure.
type victimRequest struct{ Time time.Duration }

// beVictim sends small messages, one at a time and then with 32 under way, and measures them in processor time of its own.
func beVictim(c *child, q victimRequest) (v victimAnswer, err error) {
	one := flowRequest{Size: smallSize, Slots: smallSlots, Window: 1}
	f, _, _, err := c.flow(one)
	if err != nil {
		return v, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var times []float64
	for end := time.Now().Add(q.Time / 2); time.Now().Before(end); {
		switched, began := switches(), time.Now()
		if err := f.Count(1); err != nil {
			return v, err
		}
		if took := time.Since(began); switches() == switched { // else it was not the worker that it waited for
			times = append(times, float64(took))
		}
	}
	if len(times) == 0 {
		return v, errors.New("the victim never had its processor for as long as a message takes")
	}
	slices.Sort(times)
	v.P50, v.P99 = times[len(times)/2], times[len(times)*99/100]
	one.Window = smallWindow
	if f, _, _, err = c.flow(one); err != nil {
		return v, err
	}
	began, n := ownTime(), uint64(0)
	for end := time.Now().Add(q.Time / 2); time.Now().Before(end); n += smallWindow * 8 {
		if err := f.Count(smallWindow * 8); err != nil {
			return v, err
		}
	}
	v.PerMessage = float64(ownTime()-began) / float64(n)
	return v, nil
}

// switches is how often this thread has lost its processor.
func switches() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u) // the thread is there
	return u.Nvcsw + u.Nivcsw
}

// ownTime is the processor time of this process in ns. It has one thread that does something.
func ownTime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) // the clock is there
	return ts.Nano()
}

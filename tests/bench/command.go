// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
)

// commandRequest describes commands for the guests' process to run. Bare runs them against the bare door.
type commandRequest struct {
	Bare bool
	Time time.Duration
}

// measureCommand measures modify_qp from the write of REQUEST until ERR was read and the interrupt taken. Its bound is two
// round trips of the same sizes over a bare socket, whose other side writes an eventfd before the second answer.
func measureCommand(b *bench) ([]result, error) {
	var all []result
	for _, sleeps := range []bool{false, true} {
		r, err := measureModify(b, sleeps)
		all = append(all, r...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func measureModify(b *bench, sleeps bool) (_ []result, err error) {
	w, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots, Sleeps: sleeps})
	if err != nil {
		return nil, err
	}
	defer w.close()
	name, cpus := "modify_qp, worker polls", []int{b.guestCPU}
	if sleeps {
		name, cpus = "modify_qp, worker sleeps", b.cpus
	} else if err := w.d.pinOthers(b.guestCPU); err != nil {
		return nil, err
	}
	near, err := startProcess(roleFar, cpus...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, near.stop()) }()
	var bare answerRequest
	if err := w.guest.call("door", nil, &bare); err != nil {
		return nil, err
	}
	if err := near.begin("answer", bare); err != nil {
		return nil, err
	}
	var tails []float64
	subject := func() (float64, error) {
		// Messages before, so that a worker that polls does.
		q := flowRequest{Size: smallSize, Slots: smallSlots, Window: 1, Count: 100}
		if err := w.subject("count", q, nil); err != nil {
			return 0, err
		}
		var a flowAnswer
		err := w.subject("command", commandRequest{Time: b.turn}, &a)
		tails = append(tails, a.P99)
		return a.P50, err
	}
	bound := func() (float64, error) {
		w.hold()
		var a flowAnswer
		err := w.guest.call("command", commandRequest{Bare: true, Time: b.turn}, &a)
		return a.P50, err
	}
	r, err := b.turns(name+", p50", "ns", "2 socket round trips + eventfd", subject, bound, aim{AtMost: 1.5})
	if err != nil {
		return nil, err
	}
	err = errors.Join(w.guest.call("shut", nil, nil), near.end(nil))
	tail := result{Name: name + ", p99", Unit: "ns", Value: spreadOf(tails), Rounds: len(tails)}
	return []result{r, tail}, err
}

// doors are the real and the bare door of the first guest.
type doors struct {
	real, bare *door
	// slot is the command slot, request what goes into it, response the response slot.
	slot, response []byte
	request        []byte
	timer          layout.Field
	ack            uint32
}

// openDoors makes both doors and returns what the other side of the bare one needs.
func openDoors(c *child, _ struct{}) (q answerRequest, err error) {
	e := c.guests[0].a
	l, dev := e.m.L, e.m.Dev
	d := &doors{ack: l.Const("PVRDMA_CMD_MODIFY_QP_RESP")}
	req := l.New("pvrdma_cmd_modify_qp")
	req.Set("hdr.cmd", uint64(l.Const("PVRDMA_CMD_MODIFY_QP"))).Set("qp_handle", uint64(e.qps[0].Handle)).
		Set("attr_mask", uint64(l.Const("PVRDMA_QP_STATE")|l.Const("PVRDMA_QP_MIN_RNR_TIMER"))).
		Set("attrs.qp_state", uint64(l.Const("PVRDMA_QPS_RTS")))
	d.request, d.timer = req.Bytes(), l.Field("pvrdma_cmd_modify_qp", "attrs.min_rnr_timer")
	if d.slot, err = e.m.RAM.Bytes(dev.DSR().Get("cmd_slot_dma"), len(d.request)); err != nil {
		return q, err
	}
	if d.response, err = e.m.RAM.Bytes(dev.DSR().Get("resp_slot_dma"), l.Size("pvrdma_cmd_resp_hdr")); err != nil {
		return q, err
	}
	event, err := newEvent()
	if err != nil {
		return q, err
	}
	if err := e.m.Func.SetIRQs(vfio.IRQDataEventFD|vfio.IRQActionTrigger, msixIndex, 0, 1, event); err != nil {
		return q, err
	}
	fd, err := e.m.Func.Wire().Dup()
	if err != nil {
		return q, err
	}
	registers, _ := dev.BARs()
	reg, errReg := l.Const("PVRDMA_REG_REQUEST"), l.Const("PVRDMA_REG_ERR")
	if d.real, err = newDoor(fd, event, registers, reg, errReg); err != nil {
		return q, err
	}
	c.doors = d
	return d.openBare(registers, reg, errReg)
}

// openBare makes the bare door.
func (d *doors) openBare(bar, writeReg, readReg uint32) (q answerRequest, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return q, err
	}
	event, err := newEvent()
	if err != nil {
		return q, err
	}
	d.bare, err = newDoor(pair[0], event, bar, writeReg, readReg)
	return answerRequest{PID: os.Getpid(), Socket: pair[1], Event: event}, err
}

// openBareDoor makes a bare door alone.
func openBareDoor(c *child, _ struct{}) (answerRequest, error) {
	c.doors = &doors{}
	return c.doors.openBare(0, 0, 0)
}

// msixIndex is the index of MSI-X interrupts in linux/vfio.h.
const msixIndex = 2

func newEvent() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

// shutDoors ends both doors.
func shutDoors(c *child, _ struct{}) (struct{}, error) {
	d := c.doors
	c.doors = nil
	err := errors.Join(unix.Shutdown(d.bare.fd, unix.SHUT_RDWR), d.bare.close())
	if d.real != nil {
		err = errors.Join(err, d.real.close())
	}
	return struct{}{}, err
}

// commandLatency runs commands one after the other for a while.
func commandLatency(c *child, q commandRequest) (flowAnswer, error) {
	d := c.doors
	if d == nil {
		return flowAnswer{}, errors.New("no door is open")
	}
	one := d.modify
	if q.Bare {
		one = func(byte) error { _, err := d.bare.command(); return err }
	}
	return latencyOf(q.Time, func(i int) error { return one(byte(i % 32)) })
}

// modify changes the queue pair's min_rnr_timer and looks at all that a driver looks at.
func (d *doors) modify(timer byte) error {
	d.timer.Put(d.request, uint64(timer))
	copy(d.slot, d.request)
	clear(d.response)
	v, err := d.real.command()
	if err != nil {
		return err
	}
	// struct pvrdma_cmd_resp_hdr: response, ack, err.
	if got := binary.NativeEndian.Uint32(d.response[8:]); v != 0 || got != d.ack || d.response[12] != 0 {
		return fmt.Errorf("modify_qp: ERR %d, ack %#x, err %d: %w", v, got, d.response[12], unix.EIO)
	}
	return nil
}

// latencyOf does something over and over for a while and returns how long one time takes.
func latencyOf(d time.Duration, one func(i int) error) (flowAnswer, error) {
	const most = 1 << 20
	for i := range 10 { // until all is warm
		if err := one(i); err != nil {
			return flowAnswer{}, err
		}
	}
	times := make([]int64, 0, most)
	begin := time.Now()
	last := time.Duration(0)
	for i := 0; last < d && len(times) < most; i++ {
		if err := one(i); err != nil {
			return flowAnswer{}, err
		}
		now := time.Since(begin)
		times = append(times, int64(now-last))
		last = now
	}
	slices.Sort(times)
	n := len(times)
	return flowAnswer{
		P50: float64(times[n/2]), P99: float64(times[n*99/100]), PerMessage: float64(last) / float64(n),
	}, nil
}

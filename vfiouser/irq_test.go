// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	assignFlags = irqDataEventFD | irqActionTrigger
	noneTrigger = irqDataNone | irqActionTrigger
)

func irqFaults() []badFrame {
	args, body, fds := FaultArgs, FaultBody, FaultFDs
	return []badFrame{
		{"irqs-no-data-flag", irqFrame(irqActionTrigger, IRQMSIX, 0, 1), 0, args, unix.EINVAL, false},
		{"irqs-two-data-flags", irqFrame(irqDataNone|irqDataBool|irqActionTrigger, IRQMSIX, 0, 1, 1), 0, args, unix.EINVAL, false},
		{"irqs-no-action-flag", irqFrame(irqDataNone, IRQMSIX, 0, 1), 0, args, unix.EINVAL, false},
		{"irqs-two-action-flags", irqFrame(irqDataNone|irqActionMask|irqActionUnmask, IRQMSIX, 0, 1), 0, args, unix.EINVAL, false},
		{"irqs-unknown-flag", irqFrame(noneTrigger|1<<6, IRQMSIX, 0, 1), 0, args, unix.EINVAL, false},
		{"irqs-index-5", irqFrame(noneTrigger, NumIRQs, 0, 0), 0, args, unix.EINVAL, false},
		{"irqs-argsz-19", frame{command: CommandDeviceSetIRQs, body: words(19, noneTrigger, 2, 0, 1)}, 0, args, unix.EINVAL, false},
		{"irqs-start-3", irqFrame(noneTrigger, IRQMSIX, 3, 1), 0, args, unix.EINVAL, false},
		{"irqs-count-3", irqFrame(noneTrigger, IRQMSIX, 1, 3), 0, args, unix.EINVAL, false},
		{"irqs-count-wrap", irqFrame(noneTrigger, IRQMSIX, 2, math.MaxUint32), 0, args, unix.EINVAL, false},
		{"irqs-start-wrap", irqFrame(noneTrigger, IRQMSIX, math.MaxUint32, 2), 0, args, unix.EINVAL, false},
		{"irqs-msi-none", irqFrame(noneTrigger, IRQMSI, 0, 1), 0, args, unix.EINVAL, false},
		{"irqs-count-0-start-1", irqFrame(noneTrigger, IRQMSIX, 1, 0), 0, args, unix.EINVAL, false},
		{"irqs-count-0-mask", irqFrame(irqDataNone|irqActionMask, IRQMSIX, 0, 0), 0, args, unix.EINVAL, false},
		{"irqs-count-0-bool", irqFrame(irqDataBool|irqActionTrigger, IRQMSIX, 0, 0), 0, args, unix.EINVAL, false},
		{"irqs-count-0-eventfd", irqFrame(assignFlags, IRQMSIX, 0, 0), 0, args, unix.EINVAL, false},
		{"irqs-bool-missing", irqFrame(irqDataBool|irqActionTrigger, IRQMSIX, 0, 2, 1), 0, body, unix.EINVAL, false},
		{"irqs-bool-too-many", irqFrame(irqDataBool|irqActionTrigger, IRQMSIX, 0, 2, 1, 1, 1), 0, body, unix.EINVAL, false},
		{"irqs-data-none-data", irqFrame(noneTrigger, IRQMSIX, 0, 1, 1), 0, body, unix.EINVAL, false},
		{"irqs-bool-fd", irqFrame(irqDataBool|irqActionTrigger, IRQMSIX, 0, 1, 1), 1, fds, unix.EINVAL, false},
		{"irqs-none-fd", irqFrame(noneTrigger, IRQMSIX, 0, 1), 1, fds, unix.EINVAL, false},
		{"irqs-fd-missing", irqFrame(assignFlags, IRQMSIX, 0, 2), 1, fds, unix.EINVAL, false},
		{"irqs-fd-too-many", irqFrame(assignFlags, IRQMSIX, 0, 1), 2, fds, unix.EINVAL, false},
		{"irqs-mask-err", irqFrame(irqDataNone|irqActionMask, IRQErr, 0, 1), 0, args, unix.EINVAL, false},
		{"irqs-unmask-req", irqFrame(irqDataNone|irqActionUnmask, IRQReq, 0, 1), 0, args, unix.EINVAL, false},
		{"irqs-unmask-eventfd", irqFrame(irqDataEventFD|irqActionUnmask, IRQINTx, 0, 1), 1, FaultAbsent, unix.EOPNOTSUPP, false},
		{"irqs-mask-eventfd", irqFrame(irqDataEventFD|irqActionMask, IRQMSIX, 0, 1), 1, FaultAbsent, unix.EOPNOTSUPP, false},
	}
}

// readEvents returns an eventfd's counter and sets it to 0.
func readEvents(t testing.TB, fd int) uint64 {
	t.Helper()
	var p [8]byte
	switch _, err := unix.Read(fd, p[:]); {
	case errors.Is(err, unix.EAGAIN):
		return 0
	case err != nil:
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(p[:])
}

func wantEvents(t *testing.T, fd int, want uint64) {
	t.Helper()
	if got := readEvents(t, fd); got != want {
		t.Errorf("the eventfd has %d events, want %d", got, want)
	}
}

func TestAnInterruptReachesItsEventFDAndNoOther(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	a, b := newEventFD(t), newEventFD(t)
	c.must(irqFrame(assignFlags, IRQMSIX, 1, 2).with(a, b))

	r.session().Trigger(IRQMSIX, 2)
	r.session().Trigger(IRQMSIX, 2)
	r.session().Trigger(IRQMSIX, 1)

	wantEvents(t, a, 1)
	wantEvents(t, b, 2)
}

func TestAnInterruptOfAVectorThatDoesNotExistIsIgnored(t *testing.T) {
	r := start(t, nil, nil)
	r.client()

	for _, index := range []IRQIndex{IRQINTx, IRQMSI, IRQMSIX, NumIRQs, math.MaxUint32} {
		r.session().Trigger(index, 3)
		r.session().Trigger(index, math.MaxUint32)
	}
}

func TestInterruptsWithoutAnEventFDAreLatchedAndDeliveredOnce(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	a, b := newEventFD(t), newEventFD(t)
	for range 5 {
		r.session().Trigger(IRQMSIX, 0)
	}

	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(a))
	wantEvents(t, a, 1)
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(b))

	wantEvents(t, b, 0)
}

func TestALatchedInterruptOutlivesQEMUsReassignmentOfAllVectors(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fds := []int{newEventFD(t), newEventFD(t), newEventFD(t)}
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fds[0]))

	// As QEMU enables one more vector: take one away, disable all, set all again.
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1))
	r.session().Trigger(IRQMSIX, 0)
	c.must(irqFrame(noneTrigger, IRQMSIX, 0, 0))
	r.session().Trigger(IRQMSIX, 1)
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 3).with(fds...))

	wantEvents(t, fds[0], 1)
	wantEvents(t, fds[1], 1)
	wantEvents(t, fds[2], 0)
}

func TestAResetForgetsLatchedInterruptsAndKeepsEventFDs(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	a, b := newEventFD(t), newEventFD(t)
	c.must(irqFrame(assignFlags, IRQMSIX, 1, 1).with(b))
	r.session().Trigger(IRQMSIX, 0)

	c.must(frame{command: CommandDeviceReset})
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(a))
	r.session().Trigger(IRQMSIX, 1)

	wantEvents(t, a, 0)
	wantEvents(t, b, 1)
}

func TestAMaskedVectorDeliversOnceWhenUnmasked(t *testing.T) {
	for _, tc := range []struct {
		name string
		data uint32
		bool []byte
	}{{"without data", irqDataNone, nil}, {"by booleans", irqDataBool, []byte{0, 1, 0}}} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, nil, nil)
			c := r.client()
			fds := []int{newEventFD(t), newEventFD(t), newEventFD(t)}
			c.must(irqFrame(assignFlags, IRQMSIX, 0, 3).with(fds...))
			c.must(irqFrame(tc.data|irqActionMask, IRQMSIX, 0, 3, tc.bool...))

			r.session().Trigger(IRQMSIX, 1)
			r.session().Trigger(IRQMSIX, 1)
			wantEvents(t, fds[1], 0)
			c.must(irqFrame(tc.data|irqActionUnmask, IRQMSIX, 0, 3, tc.bool...))

			wantEvents(t, fds[1], 1)
			r.session().Trigger(IRQMSIX, 1)
			wantEvents(t, fds[1], 1)
		})
	}
}

func TestINTxMasksItselfUntilTheClientUnmasksIt(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd := newEventFD(t)
	c.must(irqFrame(assignFlags, IRQINTx, 0, 1).with(fd))

	r.session().Trigger(IRQINTx, 0)
	r.session().Trigger(IRQINTx, 0)
	wantEvents(t, fd, 1)
	c.must(irqFrame(irqDataNone|irqActionUnmask, IRQINTx, 0, 1))
	wantEvents(t, fd, 1)
	c.must(irqFrame(irqDataNone|irqActionUnmask, IRQINTx, 0, 1))

	wantEvents(t, fd, 0)
}

func TestAClientMayTriggerItsOwnInterrupts(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fds := []int{newEventFD(t), newEventFD(t), newEventFD(t)}
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 3).with(fds...))

	c.must(irqFrame(noneTrigger, IRQMSIX, 1, 2))
	c.must(irqFrame(irqDataBool|irqActionTrigger, IRQMSIX, 0, 3, 1, 0, 1))

	wantEvents(t, fds[0], 1)
	wantEvents(t, fds[1], 1)
	wantEvents(t, fds[2], 2)
}

func TestErrAndReqTakeAnEventFDLikeTheOthers(t *testing.T) {
	for _, index := range []IRQIndex{IRQErr, IRQReq} {
		t.Run(index.String(), func(t *testing.T) {
			r := start(t, nil, nil)
			c := r.client()
			fd := newEventFD(t)

			c.must(irqFrame(assignFlags, index, 0, 1).with(fd))
			r.session().Trigger(index, 0)
			wantEvents(t, fd, 1)
			c.must(irqFrame(noneTrigger, index, 0, 0))
			r.session().Trigger(index, 0)

			wantEvents(t, fd, 0)
		})
	}
}

func TestDisablingAnIndexWithoutVectorsIsNoError(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()

	c.must(irqFrame(noneTrigger, IRQMSI, 0, 0))
}

func TestIRQInfoNamesVectorsAndFlags(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()

	for index, want := range map[IRQIndex][]byte{
		IRQINTx: words(16, 7, 0, 1), IRQMSI: words(16, 1, 1, 0), IRQMSIX: words(16, 1, 2, 3),
		IRQErr: words(16, 1, 3, 1), IRQReq: words(16, 1, 4, 1),
	} {
		if got := c.must(irqInfoFrame(index)); !bytes.Equal(got.body, want) {
			t.Errorf("%s: got %v, want %v", index, got.body, want)
		}
	}
}

func TestOnlyEventFDsAreTakenForInterrupts(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	good := newEventFD(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])

	for name, fd := range map[string]int{"a file": int(file.Fd()), "a pipe": pipe[1], "memory": newMemFD(t, 4096)} {
		got := c.call(irqFrame(assignFlags, IRQMSIX, 0, 2).with(good, fd))
		if unix.Errno(got.errno) != unix.EINVAL {
			t.Errorf("%s: got errno %v", name, unix.Errno(got.errno))
		}
	}

	r.session().Trigger(IRQMSIX, 0)
	wantEvents(t, good, 0) // a refused message has assigned nothing
}

func TestNoInterruptIsLostOrDoubledWhileVectorsAreReassigned(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd := newEventFD(t)
	var triggers sync.WaitGroup
	for range 300 {
		c.must(irqFrame(assignFlags, IRQMSIX, 0, 1))

		triggers.Go(func() { r.session().Trigger(IRQMSIX, 0) })
		c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))
		triggers.Wait()

		wantEvents(t, fd, 1)
	}
}

func TestTriggerDoesNotAllocate(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd := newEventFD(t)
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))
	s := r.session()

	delivered := testing.AllocsPerRun(1000, func() { s.Trigger(IRQMSIX, 0) })
	latched := testing.AllocsPerRun(1000, func() { s.Trigger(IRQMSIX, 1) })

	if delivered != 0 || latched != 0 {
		t.Errorf("%v allocations when delivered, %v when latched", delivered, latched)
	}
}

func TestTriggerAfterTheEndIsIgnored(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd := newEventFD(t)
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))
	s := r.session()
	c.close()
	r.disconnect(1)

	s.Trigger(IRQMSIX, 0)

	wantEvents(t, fd, 0)
}

func TestAnEventFDIsMadeNonBlocking(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)

	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))

	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("got flags %#x, %v", flags, err)
	}
}

func TestDisablingAnIndexUnmasksItsVectors(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd := newEventFD(t)
	c.must(irqFrame(assignFlags, IRQINTx, 0, 1).with(fd))
	r.session().Trigger(IRQINTx, 0)

	c.must(irqFrame(noneTrigger, IRQINTx, 0, 0))
	c.must(irqFrame(assignFlags, IRQINTx, 0, 1).with(fd))
	r.session().Trigger(IRQINTx, 0)

	wantEvents(t, fd, 2)
}

// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// faultCases are about guests whose memory goes away, and devices that fail.
func faultCases() []Case {
	return []Case{
		{"memory that is unmapped is the fault of its owner", unmapped},
		{"a file that is truncated is the fault of its owner", truncated},
		{"within one guest the side that failed is found too", faultWithinOneGuest},
		{"pages that cannot be written are the fault of their owner", notWritable},
		{"a device that fails loses its work, and its peer learns it", failingDevice},
	}
}

// How an operation of which the responder has no memory ends, unless it needs a receive: the responder's memory failed,
// or the region has no right to it any more.
const (
	failedMemory = hostverbs.WCRemOpErr
	takenMemory  = hostverbs.WCRemAccessErr
)

// expectFault carries out an operation one of whose sides has lost its memory: remote is how it ends if that is the
// responder, 0 if it is the requester.
func (w *world) expectFault(what string, m move, a, b *guest, near, far *region, remote hostverbs.WCStatus) {
	w.t.Helper()
	ea, eb := w.pair(a, b, nil)
	eb.recv(rwr(9, far.sge(0, far.n)))
	ea.send(rdma(1, m.op, far, 0, near.sge(0, near.n)), wr(2, hostverbs.OpSend))
	w.settle()
	if remote == 0 {
		ea.sends(what, failed(1, hostverbs.WCLocProtErr), failed(2, hostverbs.WCWRFlushErr))
		eb.in(what, hostverbs.StateRTS)
		eb.recvs(what)
		return
	}
	status, events := hostverbs.WCWRFlushErr, []hostverbs.EventType{hostverbs.EventQPAccessErr}
	switch {
	case m.send:
		status, remote, events = hostverbs.WCLocProtErr, hostverbs.WCRemOpErr, nil
	case remote == failedMemory:
		events[0] = hostverbs.EventQPFatal
	}
	eb.events(what, events...)
	ea.sends(what, failed(1, remote), failed(2, hostverbs.WCWRFlushErr))
	eb.in(what, hostverbs.StateErr)
	eb.recvs(what, failed(9, status))
}

func unmapped(t testing.TB, env Env) {
	w := newWorld(t, env)
	for _, local := range []bool{true, false} {
		a, b := w.guest(), w.guest()
		near, far := a.buffer(5000), b.buffer(5000)
		gone, remote := b, takenMemory
		if local {
			gone, remote = a, 0
		}
		if err := gone.space.Unmap(ramBase, ramBytes); err != nil {
			t.Fatalf("unmap: %v", err)
		}
		for _, m := range moves() {
			w.expectFault(fmt.Sprintf("%s, local %t", m.op, local), m, a, b, near, far, remote)
		}
		w.verify("unmapped")
	}
}

// fileRegion registers n bytes of a file, mapped at an address of its own, and returns what truncates the file.
func (g *guest) fileRegion(addr uint64, n int) (*region, func()) {
	g.w.t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		g.w.t.Fatalf("memfd: %v", err)
	}
	g.w.t.Cleanup(func() { _ = unix.Close(fd) })
	size := (n + page - 1) / page * page
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		g.w.t.Fatalf("ftruncate: %v", err)
	}
	prot := guestmem.ProtRead | guestmem.ProtWrite
	if err := g.space.Map(addr, uint64(size), fd, 0, prot); err != nil {
		g.w.t.Fatalf("map: %v", err)
	}
	r := &region{g: g, start: 0x5000, n: uint64(n)}
	for off := 0; off < size; off += page {
		r.pages = append(r.pages, addr+uint64(off))
	}
	if r.mem, err = g.space.Pin(r.pages, prot); err != nil {
		g.w.t.Fatalf("pin: %v", err)
	}
	r.mr, err = g.ctx.RegMR(g.pd, hostverbs.MRAttr{Memory: r.mem, Start: r.start, Length: r.n, Access: everything})
	if err != nil {
		g.w.t.Fatalf("register: %v", err)
	}
	return r, func() {
		if err := unix.Ftruncate(fd, 0); err != nil {
			g.w.t.Fatalf("truncate: %v", err)
		}
	}
}

func truncated(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	for i, m := range moves() {
		addr := uint64(i+1) << 32
		lost, truncate := b.fileRegion(addr, 5000)
		truncate()
		w.expectFault(fmt.Sprintf("%s, the responder's file", m.op), m, a, b, a.buffer(5000), lost, failedMemory)
		lost, truncate = a.fileRegion(addr, 5000)
		truncate()
		w.expectFault(fmt.Sprintf("%s, the requester's file", m.op), m, a, b, lost, b.buffer(5000), 0)
	}
}

func faultWithinOneGuest(t testing.TB, env Env) {
	w := newWorld(t, env)
	a := w.guest()
	for i, m := range moves() {
		addr := uint64(i+1) << 32
		lost, truncate := a.fileRegion(addr, 5000)
		truncate()
		w.expectFault(fmt.Sprintf("%s, the responder's file", m.op), m, a, a, a.buffer(5000), lost, failedMemory)
		w.expectFault(fmt.Sprintf("%s, the requester's file", m.op), m, a, a, lost, a.buffer(5000), 0)
	}
}

func failingDevice(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	broken := fmt.Errorf("the guest's ring is gone: %w", unix.EFAULT)

	ea, eb := w.pair(a, b, nil)
	eb.dev.pullErr = broken
	ea.send(wr(1, hostverbs.OpSend), wr(2, hostverbs.OpSend))
	w.settle()
	ea.sends("no receive can be pulled", failed(1, hostverbs.WCRemOpErr), failed(2, hostverbs.WCWRFlushErr))

	ea, eb = w.pair(a, b, nil)
	eb.dev.recvErr = broken
	eb.recv(rwr(8), rwr(9))
	ea.send(wr(1, hostverbs.OpSend), wr(2, hostverbs.OpSend))
	w.settle()
	ea.sends("no receive can be completed", failed(1, hostverbs.WCRemOpErr), failed(2, hostverbs.WCWRFlushErr))
	if n := len(eb.dev.received); n != 1 {
		t.Errorf("a failing device was given %d completions, want 1", n)
	}

	ea, eb = w.pair(a, b, nil)
	ea.dev.sendErr = broken
	ea.send(wr(1, hostverbs.OpRDMAWrite), wr(2, hostverbs.OpRDMAWrite))
	w.settle()
	if n := len(ea.dev.sent); n != 1 {
		t.Errorf("a failing device was given %d completions, want 1", n)
	}
	eb.send(wr(3, hostverbs.OpRDMAWrite))
	w.settle()
	eb.sends("to a device that failed", failed(3, hostverbs.WCRetryExcErr))
	ea.to(hostverbs.StateErr)
	ea.recv(rwr(4))
	w.settle()
	ea.recvs("of a device that failed")
	ea.dev.sendErr = nil
	ea.to(hostverbs.StateReset)
	ea.in("reset", hostverbs.StateReset)

	ea, _ = w.pair(a, b, nil)
	ea.dev.pullErr = broken
	ea.to(hostverbs.StateErr)
	w.settle()
	ea, _ = w.pair(a, b, nil)
	ea.recv(rwr(1), rwr(2))
	ea.dev.recvErr = broken
	ea.to(hostverbs.StateErr)
	w.settle()
	if n := len(ea.dev.received); n != 1 {
		t.Errorf("a device that fails while it is flushed was given %d completions, want 1", n)
	}
}

// readOnly registers n bytes as writable whose pages are not.
func (g *guest) readOnly(n int) *region {
	g.w.t.Helper()
	r := &region{g: g, start: 0x9000, n: uint64(n), pages: g.takePages((n+page-1)/page, false)}
	var err error
	if r.mem, err = g.space.Pin(r.pages, guestmem.ProtRead); err != nil {
		g.w.t.Fatalf("pin: %v", err)
	}
	r.mr, err = g.ctx.RegMR(g.pd, hostverbs.MRAttr{Memory: r.mem, Start: r.start, Length: r.n, Access: everything})
	if err != nil {
		g.w.t.Fatalf("register: %v", err)
	}
	return r
}

func notWritable(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	for _, m := range moves() {
		if m.op == hostverbs.OpRDMARead {
			w.expectFault("read into pages without write access", m, a, b, a.readOnly(5000), b.buffer(5000), 0)
		} else {
			w.expectFault(m.op.String()+" to pages without write access", m, a, b, a.buffer(5000), b.readOnly(5000), takenMemory)
		}
	}
	w.verify("not writable")
}

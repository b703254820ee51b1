// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// token is what every request of the matrix carries in hdr.response: the answer repeats it.
const token = 0x1122334455667788

// picture is all that a refused command must leave alone.
type picture struct {
	state  inproc.State
	memory [2][]byte // of both guests
	path   [2]pvrdma.Counters
}

func (b *board) guests() [2]*inproc.Guest { return [2]*inproc.Guest{b.Guest, b.other} }

// look takes a picture. state is the last one if nothing has happened to the device since, or nil.
func (b *board) look(state *inproc.State) picture {
	var p picture
	if state == nil {
		p.state = b.State()
	} else {
		p.state = *state
	}
	for i, g := range b.guests() {
		p.memory[i] = bytes.Clone(g.RAM.All())
		p.path[i] = g.Fn.Counters()
	}
	return p
}

// same fails if anything but the answer in the response slot has changed since a picture was taken.
func (b *board) same(t testing.TB, before picture) {
	t.Helper()
	after := b.look(nil)
	if diff := before.state.Diff(after.state); diff != "" {
		t.Errorf("the device has changed:\n%s", diff)
	}
	if before.path != after.path {
		t.Errorf("the data path's counters were %+v, are %+v", before.path, after.path)
	}
	for i, whose := range []string{"this guest", "the other guest"} {
		was, is := before.memory[i], after.memory[i]
		if i == 0 {
			b.hide(was)
			b.hide(is)
		}
		if at := firstDifference(was, is); at >= 0 {
			t.Errorf("guest memory of %s has changed at offset %#x", whose, at)
		}
	}
}

// hide clears the response slot's own bytes in a copy of the guest's memory.
func (b *board) hide(memory []byte) {
	off := b.offset(b.RespSlot)
	clear(memory[off : off+b.L.Size("pvrdma_cmd_resp")])
}

// offset is where in the file of the guest's memory an address lies.
func (b *board) offset(addr uint64) int {
	for _, r := range b.RAM.Regions() {
		if addr >= r.Addr && addr-r.Addr < r.Size {
			return int(r.Offset + addr - r.Addr)
		}
	}
	b.t.Fatalf("no guest memory at %#x", addr)
	return 0
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// moved fails unless exactly one counter of the guest has moved, by one, and none of the other guest.
func (b *board) moved(t testing.TB, want string) {
	t.Helper()
	if got := b.Seen.Take(); !maps.Equal(got, map[string]int{want: 1}) {
		t.Errorf("the counters that moved are %v, want %s alone; the last error is: %v", got, want, b.Seen.Last())
	}
	if got := b.other.Seen.Take(); len(got) != 0 {
		t.Errorf("counters of the other guest moved: %v", got)
	}
}

// answered fails unless the guest was told of a failure in every way that its driver looks at: all commands but
// MODIFY_QP by ERR and by a response that acknowledges nothing, MODIFY_QP by the response's err alone; and by an interrupt.
func (b *board) answered(t testing.TB, code uint32, a inproc.Answer, want unix.Errno) {
	t.Helper()
	reg, ack := uint32(want), uint32(0)
	if code == b.Const("PVRDMA_CMD_MODIFY_QP") {
		reg, ack = 0, b.Const("PVRDMA_CMD_MODIFY_QP_RESP")
	}
	if a.Reg != reg {
		t.Errorf("ERR is %d, want %d", a.Reg, reg)
	}
	h := a.Header
	if h.Get32("ack") != ack || h.Get("err") != uint64(want) || h.Get("response") != token {
		t.Errorf("the response has ack %#x, err %d, response %#x; want ack %#x, err %d", h.Get("ack"), h.Get("err"),
			h.Get("response"), ack, want)
	}
	if rest := a.Slot[b.L.Size("pvrdma_cmd_resp_hdr"):]; slices.ContainsFunc(rest, func(c byte) bool { return c != 0 }) {
		t.Errorf("the response of a failure holds % x", rest)
	}
	if icr := b.Reg("ICR"); icr != 1 {
		t.Errorf("interrupt causes are %#x, want the response's alone", icr)
	}
}

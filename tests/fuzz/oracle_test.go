// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// census counts what a world must give back.
type census struct{ files, goroutines int }

func (c census) above(o census) bool { return c.files > o.files || c.goroutines > o.goroutines }

func count() census {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err) // /proc is there
	}
	return census{len(files), runtime.NumGoroutine()}
}

// finish ends the script's guest, and looks what it did to the neighbour and what it left.
func (w *world) finish() {
	w.t.Helper()
	w.stop.Store(true)
	w.threads.Wait()
	w.Settle()
	w.n.untouched(w.t)
	w.n.alive(w.t, w.patience)
	if bytes.Contains(w.RAM.All(), binary.LittleEndian.AppendUint64(nil, secretWord)) {
		w.t.Error("the guest has a secret of its neighbour's in its memory")
	}
	if w.uar != nil {
		if err := unix.Munmap(w.uar); err != nil {
			w.t.Error(err)
		}
	}
	if !fuzzing() {
		w.Control("RESET")
		w.nothingKept()
	}
	w.Detach()
	if !fuzzing() {
		state := w.n.State()
		for _, trace := range []string{".Name a", ".owner a", ".guest a"} {
			if line := state.Find(trace); line != "" {
				w.t.Errorf("the guest is gone, and the neighbour's state leads to it: %s", line)
			}
		}
	}
	w.Host.Close()
	w.nothingLeft()
}

// kept is where a device has what belongs to its objects: in the tables, and in the books of its memory.
var kept = []string{
	".pds.slots", ".mrs.slots", ".cqs.slots", ".qps.slots", ".contexts.slots", ".pinned ", ".mem.pages ",
}

// nothingKept fails if the guest's device, which was reset, still has objects or pages of some.
func (w *world) nothingKept() {
	w.t.Helper()
	// A state names a thing by the first path that leads to it. This is the one unless the neighbour leads there, too.
	const device = ".fn.device"
	state := w.State()
	if state.Find(device+".mem.owner a") == "" {
		w.t.Error("the device was reset, and the neighbour's state leads to it")
	}
	for _, place := range kept {
		if line := state.Find(device + place); line != "" {
			w.t.Errorf("the device was reset and keeps %s", line)
		}
	}
}

// nothingLeft fails if the world has left a file or a goroutine.
func (w *world) nothingLeft() {
	w.t.Helper()
	now := count()
	for deadline := time.Now().Add(w.patience); now.above(w.left) && time.Now().Before(deadline); now = count() {
		time.Sleep(100 * time.Microsecond)
	}
	if now.above(w.left) {
		w.t.Errorf("%+v before, %+v after", w.left, now)
	}
}

// untouched fails if the neighbour's memory has changed where the device has nothing to write for the first guest.
func (n *neighbour) untouched(t testing.TB) {
	t.Helper()
	now := n.RAM.All()
	if bytes.Equal(now, n.secret) {
		return
	}
	for _, r := range n.RAM.Regions() {
		for at := uint64(0); at < r.Size; at += inproc.PageSize {
			page := now[r.Offset+at:][:inproc.PageSize]
			if !n.open[r.Addr+at] && !bytes.Equal(page, n.secret[r.Offset+at:][:inproc.PageSize]) && !n.event(r.Addr+at) {
				t.Errorf("the neighbour's page %#x has changed", r.Addr+at)
			}
		}
	}
}

// event reports whether a page belongs to one of the neighbour's event rings: what its peer does wrong is told there.
func (n *neighbour) event(page uint64) bool {
	for _, ring := range []string{"async_ring_pages", "cq_ring_pages"} {
		table := binary.LittleEndian.Uint64(n.Bytes(n.DSR.Get(ring+".pdir_dma"), 8))
		for i := range n.DSR.Get(ring + ".num_pages") {
			if binary.LittleEndian.Uint64(n.Bytes(table+8*i, 8)) == page {
				return true
			}
		}
	}
	return false
}

// alive fails unless the neighbour's device executes a command and carries a message between its own queue pairs.
func (n *neighbour) alive(t testing.TB, patience time.Duration) {
	t.Helper()
	if a := n.Post(n.Request("query_port").Set("port_num", 1).Bytes()); !a.OK() {
		t.Errorf("the neighbour's QUERY_PORT: ERR %d, %v", a.Reg, n.Seen.Last())
	}
	recv := n.Bytes(n.loop2.Pages[2], recvStride)
	n.L.View("pvrdma_rq_wqe_hdr", recv).Set("wr_id", 2).Set("num_sge", 0)
	ram.Store32(n.Bytes(n.loop2.Pages[0], 16), 8, 1)
	n.L.View("pvrdma_sq_wqe_hdr", n.Bytes(n.loop.Pages[1], sendStride)).Set("wr_id", 1).Set("num_sge", 0).
		Set("opcode", uint64(n.Const("PVRDMA_WR_SEND")))
	ram.Store32(n.Bytes(n.loop.Pages[0], 16), 0, 1)
	n.Doorbell(1, 0, n.Const("PVRDMA_UAR_QP_SEND")|n.loop.Handle)
	ring := n.Bytes(n.loopCQ.Pages[0], 16)
	for deadline := time.Now().Add(patience); ram.Load32(ring, 8) != 2; {
		if time.Now().After(deadline) {
			t.Errorf("the neighbour's own message has not arrived: %d completions, %v", ram.Load32(ring, 8), n.Seen.Counts())
			return
		}
		runtime.Gosched()
	}
	for i := range 2 {
		cqe := n.L.View("pvrdma_cqe", n.Bytes(n.loopCQ.Pages[1]+uint64(64*i), 64))
		if cqe.Get("status") != 0 {
			t.Errorf("the neighbour's own message has status %d", cqe.Get("status"))
		}
	}
}

// rejections is how many counters of rejected input have moved.
func rejections(moved map[string]int) (n int) {
	for name, by := range moved {
		failed := strings.HasPrefix(name, "commands_total{") && !strings.HasSuffix(name, ",ok}")
		if failed || strings.HasPrefix(name, "guest_protocol_errors_total{") {
			n += by
		}
	}
	return n
}

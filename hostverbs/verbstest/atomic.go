// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// atomicCases are about operations on one word.
func atomicCases() []Case {
	return []Case{
		{"an atomic operation changes a word and returns what it was", atomics},
		{"what an atomic operation returns may go to any pieces of memory", scatteredResult},
		{"an atomic operation on a word that is not aligned is an invalid request", misalignedAtomic},
		{"an atomic operation without room for its result is a length error", noRoomForTheResult},
		{"an atomic operation needs its rights on both sides", atomicRights},
		{"no addition is lost among connections and the guest's own processors", exactSum},
	}
}

// wordBytes is the size of what an atomic operation changes.
const wordBytes = 8

// atomicOps are the atomic operations, and how their completions name them.
func atomicOps() map[hostverbs.WROpcode]hostverbs.WCOpcode {
	return map[hostverbs.WROpcode]hostverbs.WCOpcode{
		hostverbs.OpAtomicCmpAndSwp: hostverbs.WCOpCompSwap, hostverbs.OpAtomicFetchAndAdd: hostverbs.WCOpFetchAdd,
	}
}

// hasAtomics says whether the engine says that it has atomics. One that has none refuses them.
func hasAtomics(t testing.TB, env Env) bool {
	a := env.Provider.QueryDevice()
	if a.AtomicCmpSwap && a.AtomicFetchAdd {
		return true
	}
	w := newWorld(t, env)
	g := w.guest()
	for op := range atomicOps() {
		e, _ := w.pair(g, g, nil)
		e.send(wr(1, op))
		w.settle()
		e.sends(op.String(), failed(1, hostverbs.WCLocQPOpErr))
	}
	return false
}

// word makes 8 bytes of a number, in the byte order of guests.
func word(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// wordOp makes a signalled request for the word at off of a remote region.
func wordOp(id uint64, op hostverbs.WROpcode, far *region, off, compareAdd, swap uint64, sges ...hostverbs.SGE) hostverbs.SendWR {
	r := rdma(id, op, far, off, sges...)
	r.CompareAdd, r.Swap = compareAdd, swap
	return r
}

// returned is the completion of an atomic operation.
func returned(id uint64, op hostverbs.WROpcode) hostverbs.WC {
	return hostverbs.WC{WRID: id, Opcode: atomicOps()[op], ByteLen: wordBytes}
}

// words registers memory whose first byte is aligned to a word but not to a page.
func (g *guest) words(n int) *region {
	return g.register(n, shape{access: everything, start: 0x7f00_0000_0ff0, scatter: true})
}

func atomics(t testing.TB, env Env) {
	if !hasAtomics(t, env) {
		return
	}
	const swap, add = hostverbs.OpAtomicCmpAndSwp, hostverbs.OpAtomicFetchAndAdd
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64), b.words(3*page)
	ea, eb := w.pair(a, b, nil)
	id := uint64(0)
	for _, at := range []uint64{0, 8, 16, page - 8, page, 3*page - 8} {
		for _, c := range []struct {
			op                           hostverbs.WROpcode
			before, compareAdd, swap, is uint64
		}{
			{swap, 7, 7, 9, 9},
			{swap, 7, 8, 9, 7},
			{swap, 0, 0, ^uint64(0), ^uint64(0)},
			{swap, 1 << 32, 0, 5, 1 << 32},
			{swap, 0x0102030405060708, 0x0102030405060708, 0x1112131415161718, 0x1112131415161718},
			{add, 7, 0, 9, 7},
			{add, 7, 5, 9, 12},
			{add, 0xffffffff, 1, 0, 1 << 32},
			{add, ^uint64(0), 2, 0, 1},
			{add, 5, ^uint64(0), 0, 4},
		} {
			id++
			what := fmt.Sprintf("%s at %#x: %#x with %#x, %#x", c.op, at, c.before, c.compareAdd, c.swap)
			far.put(at, word(c.before))
			far.expect(at, word(c.is))
			near.expect(5, word(c.before))
			ea.send(wordOp(id, c.op, far, at, c.compareAdd, c.swap, near.sge(5, wordBytes)))
			w.settle()
			ea.sends(what, returned(id, c.op))
			w.verify(what)
			if t.Failed() {
				return
			}
		}
	}
	eb.recvs("no receive is used")
	quiet := wordOp(99, add, far, 0, 1, 0, near.sge(0, wordBytes))
	quiet.Flags = 0
	near.expect(0, far.peek(0))
	far.expect(0, word(binary.LittleEndian.Uint64(far.peek(0))+1))
	ea.send(quiet)
	w.settle()
	ea.sends("unsignalled")
	w.verify("unsignalled")
}

// peek returns the word that the guest expects at off.
func (r *region) peek(off uint64) []byte {
	return append([]byte(nil), r.g.want[r.at(off):][:wordBytes]...)
}

func scatteredResult(t testing.TB, env Env) {
	if !hasAtomics(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(3*page), b.words(64)
	ea, _ := w.pair(a, b, nil)
	// The region begins 0x123 bytes into a page.
	across := uint64(page - 0x123 - 3)
	for what, c := range map[string]struct {
		sges  []hostverbs.SGE
		bytes []uint64 // where each byte of the result goes
	}{
		"across two pages":  {[]hostverbs.SGE{near.sge(across, 8)}, []uint64{across, across + 1, across + 2, across + 3, across + 4, across + 5, across + 6, across + 7}},
		"in three pieces":   {[]hostverbs.SGE{near.sge(100, 1), near.sge(50, 4), near.sge(300, 3)}, []uint64{100, 50, 51, 52, 53, 300, 301, 302}},
		"with empty pieces": {[]hostverbs.SGE{{}, near.sge(3, 4), {}, near.sge(40, 4), {}}, []uint64{3, 4, 5, 6, 40, 41, 42, 43}},
		"more room than it needs": {
			[]hostverbs.SGE{near.sge(60, 6), near.sge(20, 100), {Addr: 1, Length: 99, LKey: 0xfffffff0}},
			[]uint64{60, 61, 62, 63, 64, 65, 20, 21},
		},
	} {
		for op := range atomicOps() {
			const is = 0x0807060504030201
			result := word(is)
			far.put(8, result)
			far.expect(8, word(is+1))
			for i, at := range c.bytes {
				near.expect(at, result[i:i+1])
			}
			compareAdd := uint64(1)
			if op == hostverbs.OpAtomicCmpAndSwp {
				compareAdd = is
			}
			ea.send(wordOp(1, op, far, 8, compareAdd, is+1, c.sges...))
			w.settle()
			ea.sends(what, returned(1, op))
			w.verify(fmt.Sprintf("%s %s", op, what))
			if t.Failed() {
				return
			}
		}
	}
}

func misalignedAtomic(t testing.TB, env Env) {
	if !hasAtomics(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64), b.words(2*page)
	for op := range atomicOps() {
		for _, at := range []uint64{1, 2, 4, 7, 12} {
			what := fmt.Sprintf("%s at %d", op, at)
			ea, eb := w.pair(a, b, nil)
			eb.recv(rwr(9))
			ea.send(wordOp(1, op, far, at, 0, 1, near.sge(0, wordBytes)))
			w.settle()
			ea.sends(what, failed(1, hostverbs.WCRemInvReqErr))
			eb.recvs(what, failed(9, hostverbs.WCWRFlushErr))
			eb.events(what, hostverbs.EventQPReqErr)
			w.verify(what)
		}
	}
}

func noRoomForTheResult(t testing.TB, env Env) {
	if !hasAtomics(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64), b.words(64)
	for op := range atomicOps() {
		for what, sges := range map[string][]hostverbs.SGE{
			"no memory": nil, "seven bytes": {near.sge(0, 7)}, "4 and 3": {near.sge(0, 4), near.sge(8, 3)}, "empty": {near.sge(0, 0)},
		} {
			ea, eb := w.pair(a, b, nil)
			ea.send(wordOp(1, op, far, 0, 0, 1, sges...))
			w.settle()
			ea.sends(what, failed(1, hostverbs.WCLocLenErr))
			eb.in(what, hostverbs.StateRTS)
			w.verify(what)
		}
	}
}

func atomicRights(t testing.TB, env Env) {
	if !hasAtomics(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64), b.words(64)
	for op, wc := range atomicOps() {
		m := move{op: op, wc: wc}
		for _, c := range b.badWords(op) {
			what := fmt.Sprintf("%s, %s", op, c.name)
			w.refused(a, b, what, m, c, near)
			w.verify(what)
		}
		for _, c := range a.badSGEs() {
			what := fmt.Sprintf("%s, result to %s", op, c.name)
			if c.late || c.sge.Length != wordBytes {
				continue // what lies behind the word does not matter
			}
			ea, eb := w.pair(a, b, nil)
			ea.send(wordOp(1, op, far, 0, 0, 1, c.sge))
			w.settle()
			ea.sends(what, failed(1, hostverbs.WCLocProtErr))
			eb.in(what, hostverbs.StateRTS)
			w.verify(what)
		}
		for what, c := range map[string]struct {
			spoil func(la, lb *link)
			want  hostverbs.WCStatus
		}{
			"the responder's queue pair has no right": {func(_, lb *link) { lb.access &^= hostverbs.AccessRemoteAtomic }, hostverbs.WCRemInvReqErr},
			"the responder has no resources":          {func(_, lb *link) { lb.destRdAtomic = 0 }, hostverbs.WCRemInvReqErr},
			"the requester may have none outstanding": {func(la, _ *link) { la.rdAtomic = 0 }, hostverbs.WCLocQPOpErr},
		} {
			ea, eb := w.pair(a, b, c.spoil)
			ea.send(wordOp(1, op, far, 0, 0, 1, near.sge(0, wordBytes)))
			w.settle()
			ea.sends(what, failed(1, c.want))
			if c.want == hostverbs.WCRemInvReqErr {
				eb.events(what, hostverbs.EventQPReqErr)
			}
			w.verify(what)
		}
	}
}

// badWords returns aligned words that an atomic operation has no right to in the guest's memory.
func (g *guest) badWords(op hostverbs.WROpcode) (bad []badKey) {
	for _, c := range g.badKeys(op) {
		if c.n == wordBytes && !strings.HasPrefix(c.name, "one byte") {
			c.addr &^= wordBytes - 1
			bad = append(bad, c)
		}
	}
	r := g.words(60)
	for what, off := range map[string]uint64{
		"the word before the region": ^uint64(wordBytes - 1), "the word that the region ends in": 56, "the word behind it": 64,
	} {
		bad = append(bad, badKey{what, r.start + off, r.mr.RKey(), wordBytes})
	}
	return bad
}

func exactSum(t testing.TB, env Env) {
	if !hasAtomics(t, env) {
		return
	}
	// A round counts if the processors have added meanwhile: somebody else may have theirs.
	const connections, processors, enough, most, each = 3, 2, 10, 20_000, 50
	w := newWorld(t, env)
	b := w.guest()
	far := b.words(64)
	var ends []*end
	var nears []*region
	for range connections {
		a := w.guest()
		ea, _ := w.pair(a, b, nil)
		ends, nears = append(ends, ea), append(nears, a.buffer(64))
	}
	stop := w.processors(processors, far, 16)
	own, good := uint64(0), 0
	for n := 0; n < most && good < enough; n++ {
		before := far.look(16)
		for i, e := range ends {
			for id := range uint64(each) {
				e.send(wordOp(id, hostverbs.OpAtomicFetchAndAdd, far, 16, 1, 0, nears[i].sge(0, wordBytes)))
			}
		}
		w.settle()
		for _, e := range ends {
			own += uint64(len(e.dev.sent))
			e.dev.sent = nil
		}
		if far.look(16)-before > connections*each {
			good++
		}
	}
	theirs := stop()
	if got := far.look(16); got != own+theirs || own == 0 {
		t.Errorf("%d additions of 1 make %d", own+theirs, got)
	}
	if good < enough {
		t.Errorf("the processors added in %d of %d rounds only", good, most)
	}
	w.believe()
}

// processors has some threads add to a word of the guest, as its processors would. The function that is returned stops them
// and says how often they have.
func (w *world) processors(n int, r *region, off uint64) (stop func() uint64) {
	var running sync.WaitGroup
	var over atomic.Bool
	var added atomic.Uint64
	for range n {
		running.Go(func() {
			for !over.Load() {
				addAsProcessor(r.g.ram, r.at(off), 1)
				added.Add(1)
			}
		})
	}
	return func() uint64 {
		over.Store(true)
		running.Wait()
		return added.Load()
	}
}

// look reads the word at off as it is now.
func (r *region) look(off uint64) uint64 { return addAsProcessor(r.g.ram, r.at(off), 0) }

// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"golang.org/x/sys/unix"
)

// wordBytes is the size of what an atomic operation changes.
const wordBytes = 8

// atomicAccess allows atomic operations, too.
func atomicAccess(g *testguest.Guest) uint32 {
	return g.RemoteAccess() | g.Const("PVRDMA_ACCESS_REMOTE_ATOMIC")
}

// atomicShape is an endpoint whose memory and queue pair allow atomic operations.
func atomicShape(g *testguest.Guest) testguest.Shape {
	tune := g.DefaultTuning()
	tune.Access = atomicAccess(g)
	return testguest.Shape{Access: tune.Access, Tuning: &tune, Bytes: ram.PageSize}
}

// contender is a queue pair that leads to memory which all contenders change.
type contender struct {
	e    *testguest.Endpoint
	addr uint64
	rkey uint32
}

// contenders are queue pairs of guest a and of guest b itself that lead to one page of guest b, each by a registration of its
// own in the protection domain at its other end.
func contenders(t *testing.T, d *daemon) (all []*contender, page []byte) {
	t.Helper()
	ga, gb := d.guest("a"), d.guest("b")
	owner := gb.Open()
	home := owner.Endpoint(atomicShape(gb))
	programs := []*testguest.Program{ga.Open(), ga.Open(), owner}
	for _, p := range programs {
		near, far := p.Endpoint(atomicShape(p.G)), owner.Endpoint(atomicShape(gb))
		testguest.Connect(near, far)
		dir, err := driver.NewPageDir(gb.L, gb.RAM, home.MR.Pages())
		if err != nil {
			t.Fatal(err)
		}
		mr, err := gb.Dev.CreateMR(driver.MRParams{
			Start: 0x7000_0000, Length: ram.PageSize, PDir: dir.Addr(), PD: far.PD.Handle, Access: far.Shape.Access, Chunks: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &contender{near, 0x7000_0000, mr.RKey})
		t.Cleanup(func() {
			if err := gb.Dev.DestroyMR(mr.Handle); err != nil {
				t.Error(err)
			}
			dir.Free()
		})
	}
	return all, home.MR.Mem
}

// op is an operation on a word of the page, whose result goes to place i of the contender's own memory.
func (c *contender) op(name string, word, i int) verbs.SendWR {
	wr := c.e.Op(name, testguest.Address{Addr: c.addr, RKey: c.rkey}, 0, 0)
	wr.RemoteAddr += uint64(word)
	wr.SGE = []verbs.SGE{c.e.MR.SGE(i*wordBytes, wordBytes)}
	return wr
}

// do carries an operation out and returns what has come to place 0.
func (c *contender) do(wr verbs.SendWR) (uint64, error) {
	wc, err := postAndWait(c.e, wr)
	if err == nil && (wc.Status != 0 || wc.WRID != wr.WRID) {
		err = fmt.Errorf("request %d completes as %d with status %d: %w", wr.WRID, wc.WRID, wc.Status, unix.EIO)
	}
	return ram.Load64(c.e.MR.Mem, 0), err
}

// pipelined is how many additions of a contender are under way: more than there may be on a wire.
const pipelined = 16

// adds adds 1 to the first word n times, and returns what was found each time.
func (c *contender) adds(n int) (found []uint64, err error) {
	for posted, done := 0, 0; done < n; {
		for ; posted < n && posted-done < pipelined; posted++ {
			wr := c.op("ATOMIC_FETCH_AND_ADD", 0, posted%pipelined)
			wr.WRID, wr.CompareAdd = uint64(posted), 1
			if err := c.e.QP.PostSend(wr); err != nil {
				return nil, err
			}
		}
		wc, err := c.e.SendCQ.Wait(c.e.Shape.Mode, testguest.Patience)
		if err != nil || wc.Status != 0 || wc.WRID != uint64(done) || wc.ByteLen != wordBytes {
			return nil, fmt.Errorf("addition %d completes as %+v, %w", done, wc, errors.Join(err, unix.EIO))
		}
		found = append(found, ram.Load64(c.e.MR.Mem, done%pipelined*wordBytes))
		done++
	}
	return found, nil
}

// processor lets a processor of the guest do something until stop returns, and returns how often it did.
func processor(do func()) (stop func() (times uint64)) {
	var quit atomic.Bool
	var wg sync.WaitGroup
	var n uint64
	wg.Go(func() {
		for ; !quit.Load(); n++ {
			do()
			runtime.Gosched() // what serves the requests needs a processor, too
		}
	})
	return func() uint64 {
		quit.Store(true)
		wg.Wait()
		return n
	}
}

// together runs a function for all contenders at the same time.
func together(t *testing.T, all []*contender, do func(i int, c *contender) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, c := range all {
		wg.Go(func() { errs[i] = do(i, c) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("contender %d: %v", i, err)
		}
	}
}

// TestEachAdditionFindsWhatTheOneBeforeHasLeft has two guests and a processor add to one word at the same time: the requests to
// its lower half, the processor to its upper one.
func TestEachAdditionFindsWhatTheOneBeforeHasLeft(t *testing.T) {
	const n = 1500
	eachMode(t, func(t *testing.T, d *daemon) {
		all, page := contenders(t, d)
		stop := processor(func() { ram.Add64(page, 0, 1<<32) })
		found := make([][]uint64, len(all))
		together(t, all, func(i int, c *contender) (err error) {
			found[i], err = c.adds(n)
			return err
		})
		upper := stop()

		if sum := ram.Load64(page, 0); sum != upper<<32+uint64(n*len(all)) {
			t.Errorf("the word is %#x after %d additions of requests and %d of a processor", sum, n*len(all), upper)
		}
		seen := make([]bool, n*len(all))
		for i, values := range found {
			last := -1
			for _, v := range values {
				at := int(uint32(v))
				if at >= len(seen) || seen[at] || at <= last {
					t.Fatalf("an addition of contender %d found %d, which another one has found, or after %d", i, at, last)
				}
				seen[at], last = true, at
			}
		}
	})
}

// A lock in the first word of the page, and what it guards in another line.
const (
	lockWord    = 0
	guardedWord = 512
	// triesForALock is how often one tries to get the lock before the test fails: it is free most of the time.
	triesForALock = 1_000_000
)

// underLock adds 1 to the guarded word by a READ and a WRITE, n times.
func (c *contender) underLock(me uint64, n int) error {
	for range n {
		if err := c.lock(me); err != nil {
			return err
		}
		was, err := c.do(c.op("RDMA_READ", guardedWord, 0))
		if err != nil {
			return err
		}
		ram.Store64(c.e.MR.Mem, 0, was+1)
		if _, err := c.do(c.op("RDMA_WRITE", guardedWord, 0)); err != nil {
			return err
		}
		if holder, err := c.swap(me, 0); err != nil || holder != me {
			return fmt.Errorf("the lock of %d is held by %d: %w", me, holder, errors.Join(err, unix.EIO))
		}
	}
	return nil
}

// swap makes the lock's word val if it is old, and returns what it was.
func (c *contender) swap(old, val uint64) (uint64, error) {
	wr := c.op("ATOMIC_CMP_AND_SWP", lockWord, 0)
	wr.CompareAdd, wr.Swap = old, val
	return c.do(wr)
}

func (c *contender) lock(me uint64) error {
	for range triesForALock {
		if holder, err := c.swap(0, me); err != nil || holder == 0 {
			return err
		}
	}
	return fmt.Errorf("no lock for %d: %w", me, unix.ETIMEDOUT)
}

// TestALockByCompareAndSwapKeepsGuestsAndProcessorsApart has two guests and a processor take one lock, each by its own means,
// and change what it guards without any other care.
func TestALockByCompareAndSwapKeepsGuestsAndProcessorsApart(t *testing.T) {
	const n, mine = 60, 1 << 63
	eachMode(t, func(t *testing.T, d *daemon) {
		all, page := contenders(t, d)
		own := uint64(0)
		stop := processor(func() {
			if !ram.CompareAndSwap64(page, lockWord, 0, mine) {
				return
			}
			ram.Store64(page, guardedWord, ram.Load64(page, guardedWord)+1)
			own++
			if !ram.CompareAndSwap64(page, lockWord, mine, 0) {
				t.Error("the processor's lock was taken from it")
			}
		})
		together(t, all, func(i int, c *contender) error { return c.underLock(uint64(i+1), n) })
		stop()
		if sum := ram.Load64(page, guardedWord); sum != own+uint64(n*len(all)) {
			t.Errorf("the guarded word is %d after %d additions by requests and %d by a processor", sum, n*len(all), own)
		}
		if own == 0 {
			t.Error("the processor never had the lock, which proves nothing")
		}
	})
}

// atomicFailures are atomic operations that must fail.
func atomicFailures(g *testguest.Guest) (list []failure) {
	allowed := testguest.Shape{Access: atomicAccess(g)}
	all := func(g *testguest.Guest, tune *verbs.Tuning) { tune.Access = atomicAccess(g) }
	for _, op := range []string{"ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD"} {
		at := func(off int, change func(*verbs.SendWR)) requester {
			return request(op, 0, func(wr *verbs.SendWR) {
				wr.RemoteAddr += uint64(off)
				wr.SGE[0].Length, wr.CompareAdd, wr.Swap = wordBytes, 1, 2
				change(wr)
			})
		}
		same := func(*verbs.SendWR) {}
		list = append(list,
			failure{
				name: op + " on memory that allows none", tune: all, request: at(0, same),
				status: "REM_ACCESS_ERR", stateB: "ERR", event: "QP_ACCESS_ERR",
			},
			failure{
				name: op + " to a queue pair that allows none", b: allowed, request: at(0, same),
				status: "REM_INV_REQ_ERR", stateB: "ERR", event: "QP_REQ_ERR",
			},
			failure{
				name: op + " on a word that is not aligned", b: allowed, tune: all, request: at(4, same),
				status: "REM_INV_REQ_ERR", stateB: "ERR", event: "QP_REQ_ERR",
			},
			failure{
				name: op + " without room for what was there", b: allowed, tune: all,
				request: at(0, func(wr *verbs.SendWR) { wr.SGE[0].Length = wordBytes - 1 }), status: "LOC_LEN_ERR", stateB: "RTS",
			},
		)
	}
	return list
}

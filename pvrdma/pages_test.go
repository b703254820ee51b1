// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// manyPages returns a guest with a process at each of its doorbell pages.
func manyPages(t *testing.T, n uint32) (*rig, *guest) {
	r := newRig(t)
	cfg := defaultConfig()
	cfg.MaxUAR = n
	g := r.idleGuest(cfg, true)
	g.activate()
	for page := uint64(1); page < uint64(n); page++ {
		g.createUC(page)
	}
	return r, g
}

// fill writes a word to every place of every page where there is a doorbell.
func (g *guest) fillPages(v uint32) {
	for page := 1; page < int(g.cfg.MaxUAR); page++ {
		for _, off := range []int{abi.UARQPOffset, abi.UARCQOffset, abi.UARSRQOffset} {
			g.bells.Store32(page*abi.UARPageSize+off, v)
		}
	}
}

// TestWordsInAllPagesAreABoundedPartOfAPass: each of them is of nobody, and has to be reported.
func TestWordsInAllPagesAreABoundedPartOfAPass(t *testing.T) {
	r, g := manyPages(t, 1024)
	for range 10 {
		g.fillPages(0xffffffff)
		before := g.seen.violations()[BadDoorbell]
		r.step()
		const most = passLooks/violationLooks + 2 // the last page has three
		if n := g.seen.violations()[BadDoorbell] - before; n > most || n == 0 {
			t.Fatalf("%d words of nobody were served in one pass, want 1 to %d", n, most)
		}
	}
}

// TestWordsInOtherPagesDoNotHoldUpAProgram: other programs of its guest ring for nothing, all the time.
func TestWordsInOtherPagesDoNotHoldUpAProgram(t *testing.T) {
	const pages = 1024
	r, g := manyPages(t, pages)
	q, _ := g.rcQP(pages/2, 8)
	q.postSends(1)
	q.ring(pages/2, abi.UARQPSend)
	const most = 3*pages*(violationLooks+1)/passLooks + 1
	for passes := 0; len(q.engine.taken()) == 0; passes++ {
		if passes > most {
			t.Fatalf("a request waits for more than %d passes", most)
		}
		word := g.bells.Load32(pages/2*abi.UARPageSize + abi.UARQPOffset)
		g.fillPages(0xffffffff)
		g.bells.Store32(pages/2*abi.UARPageSize+abi.UARQPOffset, word)
		r.step()
	}
}

// TestACommandSeesWhatWasRungBeforeInAnyPage: however many pages have words.
func TestACommandSeesWhatWasRungBeforeInAnyPage(t *testing.T) {
	const pages = 1024
	_, g := manyPages(t, pages)
	all := map[uint32]*guestQP{}
	for _, page := range []uint32{1, pages / 2, pages - 1} {
		all[page], _ = g.rcQP(uint64(page), 8)
		all[page].postSends(1)
	}
	g.fillPages(0xffffffff)
	for page, q := range all {
		q.ring(page, abi.UARQPSend)
	}
	g.createPD(0)
	for page, q := range all {
		if len(q.engine.taken()) != 1 {
			t.Errorf("a request of the program at page %d was not served before the command", page)
		}
	}
}

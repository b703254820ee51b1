// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// outOfHeap returns a guest whose memory is not Go's own: it may be written while the device reads it, as no program may do
// to itself.
func (r *rig) outOfHeap() *guest {
	r.t.Helper()
	b, err := unix.Mmap(-1, 0, guestPages*abi.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = unix.Munmap(b) })
	driver := guestmem.NewDomain().NewSpace("driver")
	m := &memory{t: r.t, bytes: b, next: guestBase}
	all := m.pages(guestPages)
	m.next = guestBase
	for i := range all {
		all[i] = guestBase + uint64(i)*abi.PageSize
	}
	err = driver.MapBytes(guestBase, b, rw)
	if err == nil {
		m.view, err = driver.Pin(all, rw)
	}
	g := &guest{memory: m, rig: r, notifier: &fakeNotifier{room: -1}, seen: &recorder{}, cfg: defaultConfig()}
	g.space = r.domain.NewSpace(g.cfg.Name)
	if err = errors.Join(err, g.space.MapBytes(guestBase, b, rw)); err != nil {
		r.t.Fatal(err)
	}
	g.makeDevice(true)
	g.activate()
	return g
}

// What was judged of a request is what is carried out: its guest stores another count of pieces again and again meanwhile.
func TestTheCountOfPiecesThatIsJudgedIsTheOneThatIsUsed(t *testing.T) {
	const good, bad = 1, 3 // pieces, of which the queues allow 2
	const decodes, changes = 10_000, 50
	for name, c := range map[string]struct {
		slot   func(q *guestQP) uint64 // where the first request lies
		decode func(q *queuePair) (pieces uint8, taken bool)
	}{
		"a send": {
			func(*guestQP) uint64 { return abi.PageSize },
			func(q *queuePair) (uint8, bool) {
				var wr hostverbs.SendWR
				wrong, err := q.decodeSend(0, &wr)
				return wr.NumSGE, wrong == nil && err == nil
			},
		},
		"a receive": {
			func(q *guestQP) uint64 { return abi.PageSize * (1 + uint64(q.req.SendChunks)) },
			func(q *queuePair) (uint8, bool) {
				var wr hostverbs.RecvWR
				err := q.dev.decodeRecv(q.pages, &q.rq, &wr)
				return wr.NumSGE, err == nil && wr.Status == hostverbs.WCSuccess
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t).outOfHeap()
			g.dev.observer = nil // it would keep each
			q, _ := g.rcQP(userPage, 8)
			const numSGE = 8 // after wr_id, in both
			at := q.at(c.slot(q)) + numSGE
			q.putSend(sendWQE(abi.SendWQEHdr{Opcode: abi.WRSend}, nil, abi.SGE{}))
			q.store32(at, good)
			var over atomic.Bool
			var running sync.WaitGroup
			running.Go(func() {
				for n := uint32(good); !over.Load(); n = good + bad - n {
					q.store32(at, n)
				}
			})
			defer running.Wait()
			defer over.Store(true)
			was, seen := true, 0
			for n := 0; n < decodes || seen < changes; n++ {
				pieces, taken := c.decode(g.dev.qps.get(q.handle))
				if (taken && pieces != good) || (!taken && pieces != 0) {
					t.Fatalf("decode %d: a request of %d pieces, taken: %t", n, pieces, taken)
				}
				if taken != was {
					was = taken
					seen++
				}
			}
		})
	}
}

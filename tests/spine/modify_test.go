// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"golang.org/x/sys/unix"
)

func TestAnAttributeOutOfRangeIsRefusedAndTheStateStays(t *testing.T) {
	d := startDaemon(t, "poll")
	p := d.guest("a").Open()
	rtr := func(change func(verbs.Attr)) func(e *testguest.Endpoint) verbs.Attr {
		return func(e *testguest.Endpoint) verbs.Attr {
			a := e.QP.RTRAttr(e.PathTo(e.Address()), *e.Shape.Tuning)
			change(a)
			return a
		}
	}
	rts := func(change func(verbs.Attr)) func(e *testguest.Endpoint) verbs.Attr {
		return func(e *testguest.Endpoint) verbs.Attr {
			a := e.QP.RTSAttr(e.PathTo(e.Address()), *e.Shape.Tuning)
			change(a)
			return a
		}
	}
	set := func(field string, v uint64) func(verbs.Attr) {
		return func(a verbs.Attr) { a.Set(field, v) }
	}
	for name, attr := range map[string]func(e *testguest.Endpoint) verbs.Attr{
		"path MTU 0":                    rtr(set("path_mtu", 0)),
		"path MTU 6":                    rtr(set("path_mtu", 6)),
		"an address without a GRH":      rtr(set("ah_attr.ah_flags", 0)),
		"an address of port 2":          rtr(set("ah_attr.port_num", 2)),
		"a source GID that is not ours": rtr(set("ah_attr.grh.sgid_index", 200)),
		"min RNR timer 32":              rtr(set("min_rnr_timer", 32)),
		"255 reads to answer":           rtr(set("max_dest_rd_atomic", 255)),
		"a peer number of 32 bits":      rtr(set("dest_qp_num", 1<<24)),
		"timeout 32":                    rts(set("timeout", 32)),
		"retry count 8":                 rts(set("retry_cnt", 8)),
		"RNR retry 8":                   rts(set("rnr_retry", 8)),
		"255 reads to ask":              rts(set("max_rd_atomic", 255)),
	} {
		t.Run(name, func(t *testing.T) {
			e := p.Endpoint(testguest.Shape{})
			defer e.Destroy()
			if err := e.QP.ToInit(*e.Shape.Tuning); err != nil {
				t.Fatal(err)
			}
			a, state := attr(e), "INIT"
			if a.Get32("qp_state") == p.G.Const("PVRDMA_QPS_RTS") {
				if err := e.QP.ToRTR(e.PathTo(e.Address()), *e.Shape.Tuning); err != nil {
					t.Fatal(err)
				}
				state = "RTR"
			}
			refused(t, name, e.QP.Modify(a), unix.EINVAL, unix.EINVAL)
			e.StateIs(state)
		})
	}
}

func TestPacketNumbersAreCutTo24Bits(t *testing.T) {
	d := startDaemon(t, "poll")
	a, b := d.endpoints(testguest.Shape{})
	tune := *a.Shape.Tuning
	for _, pair := range [][2]*testguest.Endpoint{{a, b}, {b, a}} {
		path := pair[0].PathTo(pair[1].Address())
		path.PSN, path.OwnPSN = 0xff000005, 0xaa000005
		for _, err := range []error{pair[0].QP.ToInit(tune), pair[0].QP.ToRTR(path, tune), pair[0].QP.ToRTS(path, tune)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	a.Sent(a.Write(b.Address(), 0, 8), "SUCCESS")
}

// Two queue pairs are connected only if each means the other.
func TestAConnectionNeedsBothEnds(t *testing.T) {
	for name, spoil := range map[string]func(a, b *testguest.Endpoint, path *verbs.Path){
		"another packet number": func(_, _ *testguest.Endpoint, path *verbs.Path) { path.PSN++ },
		"another queue pair":    func(_, _ *testguest.Endpoint, path *verbs.Path) { path.QPN ^= 1 },
		"QP 1":                  func(_, _ *testguest.Endpoint, path *verbs.Path) { path.QPN = 1 },
		"a GID of nobody":       func(_, _ *testguest.Endpoint, path *verbs.Path) { path.DGID[15] ^= 0x40 },
		"the sender's own GID":  func(_, b *testguest.Endpoint, path *verbs.Path) { path.DGID = b.Address().GID },
	} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, "poll")
			a, b := d.endpoints(testguest.Shape{})
			a.ConnectTo(b.Address())
			tune, path := *b.Shape.Tuning, b.PathTo(a.Address())
			spoil(a, b, &path)
			if err := b.QP.ToInit(tune); err != nil {
				t.Fatal(err)
			}
			if err := b.QP.ToRTR(path, tune); err != nil {
				t.Fatal(err)
			}
			testguest.Pattern{Seed: 1}.Fill(a.MR.Mem[:64])
			a.Sent(a.Write(b.Address(), 0, 64), "RETRY_EXC_ERR")
			for i, c := range b.MR.Mem[:64] {
				if c != 0 {
					t.Fatalf("byte %d arrived", i)
				}
			}
		})
	}
}

func TestAMessageWithoutBytesNeedsNoMemory(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{})
		for _, op := range operations {
			e := exchange{t: t, op: op, from: a, to: b, imm: 0x01020304}
			recv := e.postRecv()
			wr := a.Op(op, testguest.Address{}, 0, 0) // no address, no key
			wr.Imm = e.imm
			e.checkSent(a.Sent(a.Post(wr), "SUCCESS"))
			if recv != 0 {
				e.checkReceived(b.Received(recv, "SUCCESS"))
			}
		}
	})
}

func TestADrainedQueuePairStopsUntilItIsReadyAgain(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{})
		a.Sent(a.Write(b.Address(), 0, 8), "SUCCESS")
		sqd := a.QP.Attr().WithState("SQD").With("EN_SQD_ASYNC_NOTIFY", "en_sqd_async_notify", 1)
		if err := a.QP.Modify(sqd); err != nil {
			t.Fatal(err)
		}
		awaitEvent(t, a.P.G, "SQ_DRAINED", a.QP.Handle)
		a.StateIs("SQD")
		id := a.Write(b.Address(), 0, 8)
		time.Sleep(settle)
		a.Quiet()
		if err := a.QP.Modify(a.QP.Attr().WithState("RTS")); err != nil {
			t.Fatal(err)
		}
		a.Sent(id, "SUCCESS")
	})
}

func TestAGIDBelongsToWhoBoundItUntilItIsLetGo(t *testing.T) {
	d := startDaemon(t, "poll")
	a, b := d.guest("a"), d.guest("b")
	gid, roce := [16]byte{0xfe, 0x80, 15: 0x42}, gidType(a)
	bind := func(g *testguest.Guest, index uint32) error { return g.Dev.CreateBind(index, gid, roce) }

	if err := bind(a, 5); err != nil {
		t.Fatal(err)
	}
	refused(t, "the same GID for b", bind(b, 5), unix.EADDRINUSE, unix.EFAULT)
	if err := a.Dev.DestroyBind(5, gid); err != nil {
		t.Fatal(err)
	}
	if err := bind(b, 5); err != nil {
		t.Errorf("after a let go: %v", err)
	}
	refused(t, "the same GID for a", bind(a, 6), unix.EADDRINUSE, unix.EFAULT)
	other := gid
	other[14] = 1
	if err := b.Dev.CreateBind(5, other, roce); err != nil { // replaces it
		t.Fatal(err)
	}
	if err := bind(a, 6); err != nil {
		t.Errorf("after b replaced it: %v", err)
	}
	a.Kill()
	deadline := time.Now().Add(testguest.Patience)
	for bind(b, 9) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the GID of a machine that is gone stays its own")
		}
		time.Sleep(time.Millisecond)
	}
}

// A completion that its program has not taken yet names its queue pair by handle, so that the next one must have
// another.
func TestAHandleIsNotUsedAgainAtOnce(t *testing.T) {
	d := startDaemon(t, "poll")
	p := d.guest("a").Open()
	e := p.Endpoint(testguest.Shape{})
	for range 20 {
		q, err := e.PD.CreateQP(e.QP.Init)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Destroy(); err != nil {
			t.Fatal(err)
		}
		next, err := e.PD.CreateQP(e.QP.Init)
		if err != nil {
			t.Fatal(err)
		}
		if next.Handle == q.Handle || next.QPN == q.QPN {
			t.Fatalf("queue pair %d with number %#x comes right after %d with number %#x", next.Handle, next.QPN, q.Handle,
				q.QPN)
		}
		if err := next.Destroy(); err != nil {
			t.Fatal(err)
		}
	}
}

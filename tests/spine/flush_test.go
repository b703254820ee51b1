// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

func TestErrorStateFlushesAllWorkInOrderSignaledOrNot(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{Unsignaled: true, Depth: 32})
		_ = b
		var sends, recvs []uint64
		for range 20 { // nobody receives: the first waits, the others behind it
			sends = append(sends, a.Send(0, 64))
			recvs = append(recvs, a.Recv(1024, 64))
		}
		if err := a.QP.ToErr(); err != nil {
			t.Fatal(err)
		}
		for _, id := range sends {
			a.Sent(id, "WR_FLUSH_ERR")
		}
		for _, id := range recvs {
			a.Received(id, "WR_FLUSH_ERR")
		}
		// What the kernel's drain posts: an empty write that wants no completion, and it waits for one without limit.
		drain := a.Op("RDMA_WRITE", testguest.Address{}, 0, 0)
		a.Sent(a.Post(drain), "WR_FLUSH_ERR")
		for range 100 { // more than the rings hold: what is flushed is consumed
			a.Received(a.Recv(0, 8), "WR_FLUSH_ERR")
			a.Sent(a.Send(0, 8), "WR_FLUSH_ERR")
		}
		a.StateIs("ERR")
		a.Quiet()
	})
}

func TestOnlySignaledRequestsCompleteAndTheirCompletionStandsForTheEarlierOnes(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{Unsignaled: true, Depth: 16})
		peer, signaled := b.Address(), a.P.G.Const("PVRDMA_SEND_SIGNALED")
		for round := range 20 {
			p := testguest.Pattern{Seed: 9, Iteration: uint64(round)}
			p.Fill(a.MR.Mem[:8*512])
			var last uint64
			for i := range 8 {
				wr := a.Op("RDMA_WRITE", peer, i*512, 512)
				if i == 7 {
					wr.Flags, last = signaled, wr.WRID
				}
				a.Post(wr)
			}
			a.Sent(last, "SUCCESS")
			a.Quiet()
			if err := p.Check(b.MR.Mem[:8*512]); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAResetQueuePairIsNewAgain(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{Depth: 8})
		for round := range 4 {
			for range 3 { // the indices do not end where they began
				recv := b.Recv(0, 64)
				a.Sent(a.Send(0, 64), "SUCCESS")
				b.Received(recv, "SUCCESS")
			}
			a.Recv(0, 64) // both are thrown away without a completion
			if round%2 == 0 {
				a.Send(0, 64)
			}
			for _, e := range []*testguest.Endpoint{a, b} {
				if err := e.QP.Reset(); err != nil {
					t.Fatal(err)
				}
				e.StateIs("RESET")
			}
			a.Quiet()
			b.Quiet()
			testguest.Connect(a, b)
		}
	})
}

func TestAPeerThatIsGoneIsNoticedWithinTheRetries(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{})
		peer := b.Address()
		b.Destroy()

		began := time.Now()
		a.Sent(a.Write(peer, 0, 64), "RETRY_EXC_ERR")
		took := time.Since(began)

		// timeout 12 is 16.8 ms, and there are the first try and 3 more
		if took < 50*time.Millisecond || took > 2*time.Second {
			t.Errorf("the peer's absence was noticed after %v, want about 67 ms", took)
		}
		a.StateIs("ERR")
	})
}

func TestASenderWaitsForAReceiveAsLongAsItIsTold(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{})
		ids := []uint64{a.Send(0, 32), a.Send(32, 32)}
		time.Sleep(30 * time.Millisecond)
		a.Quiet()
		testguest.Pattern{Seed: 4}.Fill(a.MR.Mem[:64])
		for i, id := range ids {
			recv := b.Recv(128+32*i, 32)
			a.Sent(id, "SUCCESS")
			b.Received(recv, "SUCCESS")
		}
		if err := (testguest.Pattern{Seed: 4}).Check(b.MR.Mem[128:192]); err != nil {
			t.Error(err)
		}
	})
}

// A receive may be posted from INIT on, and is then there when the connection is.
func TestReceivesPostedBeforeTheConnectionServeIt(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.endpoints(testguest.Shape{})
		tune := *b.Shape.Tuning
		if err := b.QP.ToInit(tune); err != nil {
			t.Fatal(err)
		}
		recv := b.Recv(0, 64)
		a.ConnectTo(b.Address())
		if err := b.QP.ToRTR(b.PathTo(a.Address()), tune); err != nil {
			t.Fatal(err)
		}
		a.Sent(a.Send(0, 64), "SUCCESS")
		b.Received(recv, "SUCCESS")
		b.StateIs("RTR")
		e, err := b.P.G.Dev.WaitAsync(testguest.Patience)
		if err != nil || e.Type != b.P.G.Const("PVRDMA_EVENT_COMM_EST") || e.Info != b.QP.Handle {
			t.Errorf("event %+v of queue pair %d, error %v; want COMM_EST", e, b.QP.Handle, err)
		}
	})
}

func TestScatteredPiecesAreJoinedInOrder(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{SGE: 16})
		p := testguest.Pattern{Seed: 6}
		whole := make([]byte, 4000)
		p.Fill(whole)
		from := cutUp(a, whole, []int{1, 0, 999, 3, 1500, 97, 1400}, true)
		into := cutUp(b, whole, []int{2000, 0, 5, 1995, 300}, false)

		recv := verbs.RecvWR{WRID: 500, SGE: into}
		if err := b.QP.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		wr := a.Op("SEND", b.Address(), 0, 0)
		wr.SGE = from
		a.Sent(a.Post(wr), "SUCCESS")
		wc := b.Received(500, "SUCCESS")
		if wc.ByteLen != 4000 {
			t.Errorf("received %d bytes, want 4000", wc.ByteLen)
		}
		var got []byte
		for _, s := range into {
			got = append(got, b.MR.Mem[s.Addr-b.MR.Addr:][:s.Length]...)
		}
		if err := p.Check(got[:4000]); err != nil {
			t.Error(err)
		}
	})
}

// cutUp names pieces of some lengths, each in a place of its own, and fills them from whole if they are to be sent.
func cutUp(e *testguest.Endpoint, whole []byte, lengths []int, fill bool) []verbs.SGE {
	var list []verbs.SGE
	for i, n := range lengths {
		at := 37 + i*2500
		if fill {
			whole = whole[copy(e.MR.Mem[at:at+n], whole):]
		}
		list = append(list, e.MR.SGE(at, n))
	}
	return list
}

// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"golang.org/x/sys/unix"
)

func TestManyConnectionsCarryTheirOwnBytesAtTheSameTime(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		pa, pb := d.guest("a").Open(), d.guest("b").Open()
		var flows []*testguest.Flow
		for i := range 6 {
			shape := testguest.Shape{Mode: verbs.Events}
			x, y := pa.Endpoint(shape), pb.Endpoint(shape)
			testguest.Connect(x, y)
			if i%2 == 1 {
				x, y = y, x
			}
			flows = append(flows, testguest.StartFlow(x, y, 100+i*4000, 0))
		}
		time.Sleep(300 * time.Millisecond)
		for i, f := range flows {
			n, err := f.Stop()
			if err != nil || n < 10 {
				t.Errorf("connection %d: %d messages, error %v", i, n, err)
			}
		}
	})
}

// pipeline is messages of which many are under way, in one direction.
type pipeline struct {
	from, to *testguest.Endpoint
	size, n  int
}

const inFlight = 32

func (p pipeline) slot(e *testguest.Endpoint, i int) []byte {
	return e.MR.Mem[i%inFlight*p.size:][:p.size]
}

// send keeps the pipeline full and checks that completions come in order.
func (p pipeline) send() error {
	done := 0
	for posted := 0; done < p.n; {
		for posted < p.n && posted-done < inFlight {
			testguest.Pattern{Seed: uint64(p.size), Iteration: uint64(posted)}.Fill(p.slot(p.from, posted))
			wr := p.from.Op("SEND_WITH_IMM", testguest.Address{}, posted%inFlight*p.size, p.size)
			wr.WRID, wr.Imm = uint64(posted), uint32(posted)
			if err := p.from.QP.PostSend(wr); err != nil {
				return err
			}
			posted++
		}
		wc, err := p.from.SendCQ.Wait(p.from.Shape.Mode, testguest.Patience)
		if err != nil {
			return err
		}
		if wc.Status != 0 || wc.WRID != uint64(done) {
			return fmt.Errorf("send %d completes as %d with status %d: %w", done, wc.WRID, wc.Status, unix.EIO)
		}
		done++
	}
	return nil
}

// post gives receive i its place.
func (p pipeline) post(i int) error {
	at := (inFlight + i%inFlight) * p.size
	return p.to.QP.PostRecv(verbs.RecvWR{WRID: uint64(i), SGE: []verbs.SGE{p.to.MR.SGE(at, p.size)}})
}

// receive checks order, immediate data and every byte.
func (p pipeline) receive() error {
	for i := range p.n {
		wc, err := p.to.RecvCQ.Wait(p.to.Shape.Mode, testguest.Patience)
		if err != nil {
			return err
		}
		if wc.Status != 0 || wc.WRID != uint64(i) || wc.Imm != uint32(i) || wc.ByteLen != uint32(p.size) {
			return fmt.Errorf("receive %d completes as %+v: %w", i, wc, unix.EIO)
		}
		at := (inFlight + i%inFlight) * p.size
		want := testguest.Pattern{Seed: uint64(p.size), Iteration: uint64(i)}
		if err := want.Check(p.to.MR.Mem[at:][:p.size]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if i+inFlight < p.n {
			if err := p.post(i + inFlight); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestAFullPipelineInBothDirectionsArrivesInOrder(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		pa, pb := d.guest("a").Open(), d.guest("b").Open()
		for _, mode := range []verbs.Mode{verbs.Polled, verbs.Events} {
			for _, size := range []int{1, 3000, 40_000} {
				t.Run(fmt.Sprintf("%v/%d bytes", mode, size), func(t *testing.T) {
					shape := testguest.Shape{Mode: mode, Bytes: 2 * inFlight * size}
					x, y := pa.Endpoint(shape), pb.Endpoint(shape)
					defer x.Destroy()
					defer y.Destroy()
					testguest.Connect(x, y)
					runPipelines(t, pipeline{x, y, size, 600}, pipeline{y, x, size, 600})
				})
			}
		}
	})
}

func runPipelines(t *testing.T, pipes ...pipeline) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, 2*len(pipes))
	for i, p := range pipes {
		for k := range inFlight {
			if err := p.post(k); err != nil {
				t.Fatal(err)
			}
		}
		wg.Go(func() { errs[2*i] = p.send() })
		wg.Go(func() { errs[2*i+1] = p.receive() })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("direction %d, %s: %v", i/2, []string{"sender", "receiver"}[i%2], err)
		}
	}
}

// A receiver that cannot keep up is waited for, however small its queue.
func TestAReceiverWithOnePlaceGetsAllMessages(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a := d.guest("a").Open().Endpoint(testguest.Shape{Depth: 64})
		b := d.guest("b").Open().Endpoint(testguest.Shape{Depth: 1})
		testguest.Connect(a, b)
		var ids []uint64
		for i := range 40 {
			testguest.Pattern{Iteration: uint64(i)}.Fill(a.MR.Mem[i*64:][:64])
			ids = append(ids, a.Send(i*64, 64))
		}
		for i, id := range ids {
			b.Received(b.Recv(0, 64), "SUCCESS")
			if err := (testguest.Pattern{Iteration: uint64(i)}).Check(b.MR.Mem[:64]); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			a.Sent(id, "SUCCESS")
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package bareloop_test

import (
	"bytes"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/tests/bench/bareloop"
	"github.com/pvrdmad/pvrdmad/tests/bench/poster"
)

// loop is a bare loop whose two sides are goroutines of the test.
type loop struct {
	shape  bareloop.Shape
	view   bareloop.View
	worker *bareloop.Worker
	flow   *poster.Flow
	ended  chan struct{}
}

func start(t *testing.T, s bareloop.Shape) *loop {
	t.Helper()
	mem := make([]byte, s.Size()) // of the heap, where the race detector sees it
	w, err := bareloop.NewWorker(s, mem)
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{shape: s, view: s.View(mem), worker: w, ended: make(chan struct{})}
	cq := poster.NewCQ(l.view.CQState, l.view.CQ)
	l.flow = &poster.Flow{Size: 64, Slots: s.Payload / 64, Window: 8}
	for i := range s.Queues {
		l.flow.Lanes = append(l.flow.Lanes, poster.Lane{
			Send: poster.NewSend(l.view.Doorbell, uint32(i), l.view.States[i], l.view.Rings[i]), CQ: cq,
			From: poster.Piece{Addr: bareloop.SourceAddr, Key: bareloop.SourceKey},
			To:   poster.Piece{Addr: bareloop.TargetAddr, Key: bareloop.TargetKey},
		})
	}
	go func() { defer close(l.ended); w.Run() }()
	t.Cleanup(l.stop)
	return l
}

func (l *loop) stop() {
	ram.Store32(l.view.Control, 0, 1)
	<-l.ended
}

func TestEveryMessageArrivesAndIsCompleted(t *testing.T) {
	for _, queues := range []int{1, 2, 100} {
		l := start(t, bareloop.Shape{Queues: queues, Depth: 8, CQE: 64, Payload: 1024})
		for i := range l.view.Source {
			l.view.Source[i] = byte(i * 7)
		}
		n := uint64((16*3 + 1) * queues)
		if err := l.flow.Count(n); err != nil {
			t.Fatal(err)
		}
		l.stop()
		if l.worker.Served != n || l.worker.Refused != 0 {
			t.Errorf("%d queues: served %d and refused %d of %d", queues, l.worker.Served, l.worker.Refused, n)
		}
		if !bytes.Equal(l.view.Source, l.view.Target) {
			t.Errorf("%d queues: the target is not what the source is", queues)
		}
		if cons := ram.Load32(l.view.States[0], 4); cons != 1 {
			t.Errorf("%d queues: the consumer's index of the first ring is %d after 49 messages in 8 slots", queues, cons)
		}
	}
}

// What the loop leaves out makes it faster than what it is compared with: its checks must be there.
func TestARequestThatIsWrongIsRefusedAndMovesNothing(t *testing.T) {
	good := func() (from, to poster.Piece) {
		return poster.Piece{Addr: bareloop.SourceAddr, Len: 64, Key: bareloop.SourceKey},
			poster.Piece{Addr: bareloop.TargetAddr, Len: 64, Key: bareloop.TargetKey}
	}
	for name, spoil := range map[string]func(from, to *poster.Piece){
		"local key":         func(from, _ *poster.Piece) { from.Key++ },
		"remote key":        func(_, to *poster.Piece) { to.Key += 1 << 15 },
		"before the source": func(from, _ *poster.Piece) { from.Addr-- },
		"before the target": func(_, to *poster.Piece) { to.Addr -= 64 },
		"after the source":  func(from, _ *poster.Piece) { from.Addr += 1024 - 63 },
		"after the target":  func(_, to *poster.Piece) { to.Addr += 1024 - 63 },
		"far away":          func(_, to *poster.Piece) { to.Addr = ^uint64(0) - 10 },
		"longer than all":   func(from, _ *poster.Piece) { from.Len = 1025 },
	} {
		t.Run(name, func(t *testing.T) {
			l := start(t, bareloop.Shape{Queues: 1, Depth: 8, CQE: 8, Payload: 1024})
			l.view.Source[0], l.view.Source[1023] = 1, 1
			from, to := good()
			spoil(&from, &to)
			l.flow.Lanes[0].Send.Write(1, from, to)
			l.flow.Lanes[0].Send.Ring()
			<-l.ended
			if l.worker.Refused != 1 || l.worker.Served != 0 {
				t.Errorf("refused %d, served %d", l.worker.Refused, l.worker.Served)
			}
			if !bytes.Equal(l.view.Target, make([]byte, 1024)) {
				t.Error("bytes were moved")
			}
		})
	}
}

// The loop stores a completion's entry before the index that shows it.
func TestACompletionIsWholeWhenItIsSeen(t *testing.T) {
	l := start(t, bareloop.Shape{Queues: 1, Depth: 64, CQE: 64, Payload: 1024})
	var e abi.CQE
	from := poster.Piece{Addr: bareloop.SourceAddr, Len: 64, Key: bareloop.SourceKey}
	to := poster.Piece{Addr: bareloop.TargetAddr, Len: 64, Key: bareloop.TargetKey}
	for i := range uint32(50) {
		l.flow.Lanes[0].Send.Write(uint64(i)+1000, from, to)
		l.flow.Lanes[0].Send.Ring()
		for ram.Load32(l.view.CQState, 8) != i+1 {
			if l.isOver() {
				t.Fatal("the loop has ended")
			}
		}
		if err := e.Decode(l.view.CQ[i*abi.CQESize:]); err != nil {
			t.Fatal(err)
		}
		if e.WRID != uint64(i)+1000 || e.Status != abi.WCSuccess || e.Opcode != abi.WCRDMAWrite {
			t.Fatalf("completion %d is %+v", i, e)
		}
	}
}

func (l *loop) isOver() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func TestAShapeThatIsNoneIsRefused(t *testing.T) {
	good := bareloop.Shape{Queues: 1, Depth: 8, CQE: 8, Payload: 64}
	for _, s := range []bareloop.Shape{
		{Queues: 0, Depth: 8, CQE: 8}, {Queues: 1, Depth: 3, CQE: 8}, {Queues: 1, Depth: 8, CQE: 9},
	} {
		if _, err := bareloop.NewWorker(s, make([]byte, 1<<20)); err == nil {
			t.Errorf("%+v is taken", s)
		}
	}
	if _, err := bareloop.NewWorker(good, make([]byte, good.Size()-1)); err == nil {
		t.Error("too little memory is taken")
	}
}

// The driver's header and the loop must agree, or the poster would not be the same for both.
func TestTheLoopsLayoutIsTheDevices(t *testing.T) {
	s := bareloop.Shape{Queues: 1, Depth: 8, CQE: 8, Payload: 64}
	mem := make([]byte, s.Size())
	v := s.View(mem)
	stride, _ := abi.SendWQEStride(1)
	if len(v.Rings[0])/s.Depth != poster.SendStride || poster.SendStride != int(stride) {
		t.Errorf("a request takes %d bytes in the loop, %d in the poster, %d in the device", len(v.Rings[0])/s.Depth,
			poster.SendStride, stride)
	}
	if len(v.CQ)/s.CQE != abi.CQESize {
		t.Errorf("a completion takes %d bytes, want %d", len(v.CQ)/s.CQE, abi.CQESize)
	}
	touched := 0 // no two parts overlap
	for _, part := range [][]byte{v.Doorbell, v.Control, v.States[0], v.Rings[0], v.CQState, v.CQ, v.Source, v.Target} {
		for i := range part {
			if part[i] != 0 {
				touched++
			}
			part[i] = 1
		}
	}
	if touched != 0 {
		t.Errorf("%d bytes belong to two parts", touched)
	}
}

// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// Where an endpoint's messages lie in its memory: what it sends, and what it gets, with bytes around it that no message
// may touch. The memory itself begins in the midst of a page.
const (
	maxMessage  = 1 << 20
	guard       = 64
	sendAt      = 0
	getAt       = maxMessage + guard
	memorySize  = getAt + maxMessage + guard
	memoryStart = 0x123
	untouched   = 0xc3
)

// sizes are message sizes around the borders of everything: words, path MTUs, pages, tables.
var sizes = []int{1, 2, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537, 1<<20 - 1, 1 << 20}

var operations = []string{"SEND", "SEND_WITH_IMM", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ"}

// exchange is one message from one endpoint to another.
type exchange struct {
	t        *testing.T
	op       string
	from, to *testguest.Endpoint
	size     int
	pattern  testguest.Pattern
	imm      uint32
}

func TestEveryByteOfEveryOperationArrives(t *testing.T) {
	eachLane(t, func(t *testing.T, d *daemon) {
		ga, gb := d.guest("a"), d.guest("b")
		pa, pb := ga.Open(), gb.Open()
		for _, wait := range []verbs.Mode{verbs.Polled, verbs.Events} {
			shape := testguest.Shape{Mode: wait, Bytes: memorySize, Offset: memoryStart}
			for name, other := range map[string]*testguest.Program{"two guests": pb, "one guest": pa} {
				x, y := pa.Endpoint(shape), other.Endpoint(shape)
				testguest.Connect(x, y)
				d.checkWindows(memorySize / 4096)
				for _, op := range operations {
					t.Run(fmt.Sprintf("%v/%s/%s", wait, name, op), func(t *testing.T) { pingPong(t, op, x, y) })
				}
				x.Destroy()
				y.Destroy()
			}
		}
	})
}

func pingPong(t *testing.T, op string, x, y *testguest.Endpoint) {
	for i, size := range sizes {
		for turn, pair := range [][2]*testguest.Endpoint{{x, y}, {y, x}} {
			e := exchange{
				t: t, op: op, from: pair[0], to: pair[1], size: size, imm: 0xa1b2c300 + uint32(i),
				pattern: testguest.Pattern{Seed: uint64(len(op)), Iteration: uint64(2*i + turn)},
			}
			e.run()
		}
	}
	x.Quiet()
	y.Quiet()
}

// run does the exchange and checks all bytes and both completions.
func (e exchange) run() {
	e.t.Helper()
	source, target := e.from, e.to
	if e.op == "RDMA_READ" {
		source, target = e.to, e.from
	}
	e.pattern.Fill(source.MR.Mem[sendAt:][:e.size])
	area := target.MR.Mem[getAt-guard : getAt+e.size+guard]
	for i := range area {
		area[i] = untouched
	}

	recv := e.postRecv()
	peer := e.to.Address()
	wr := e.from.Op(e.op, peer, sendAt, e.size)
	wr.RemoteAddr, wr.Imm = peer.Addr+getAt, e.imm
	if e.op == "RDMA_READ" {
		wr.SGE, wr.RemoteAddr = []verbs.SGE{e.from.MR.SGE(getAt, e.size)}, peer.Addr+sendAt
	}
	e.checkSent(e.from.Sent(e.from.Post(wr), "SUCCESS"))
	if recv != 0 {
		e.checkReceived(e.to.Received(recv, "SUCCESS"))
	}

	if err := e.pattern.Check(area[guard : guard+e.size]); err != nil {
		e.t.Fatalf("%s of %d bytes: %v", e.op, e.size, err)
	}
	frame := bytes.Repeat([]byte{untouched}, guard)
	if !bytes.Equal(area[:guard], frame) || !bytes.Equal(area[guard+e.size:], frame) {
		e.t.Fatalf("%s of %d bytes wrote outside its place", e.op, e.size)
	}
}

// postRecv posts what the operation consumes at the receiver and returns its id, 0 if that is nothing.
func (e exchange) postRecv() uint64 {
	e.t.Helper()
	switch {
	case strings.HasPrefix(e.op, "SEND"):
		return e.to.Recv(getAt, e.size)
	case e.op == "RDMA_WRITE_WITH_IMM":
		return e.to.Recv(0, 0)
	}
	return 0
}

func (e exchange) checkSent(wc verbs.WC) {
	e.t.Helper()
	want := map[string]string{
		"SEND": "SEND", "SEND_WITH_IMM": "SEND", "RDMA_WRITE": "RDMA_WRITE", "RDMA_WRITE_WITH_IMM": "RDMA_WRITE",
		"RDMA_READ": "RDMA_READ",
	}[e.op]
	if wc.Opcode != e.from.P.G.Const("PVRDMA_WC_"+want) {
		e.t.Fatalf("%s completes with opcode %d, want PVRDMA_WC_%s", e.op, wc.Opcode, want)
	}
	if e.op == "RDMA_READ" && wc.ByteLen != uint32(e.size) {
		e.t.Fatalf("READ of %d bytes completes with %d", e.size, wc.ByteLen)
	}
}

func (e exchange) checkReceived(wc verbs.WC) {
	e.t.Helper()
	want, g := "PVRDMA_WC_RECV", e.to.P.G
	if e.op == "RDMA_WRITE_WITH_IMM" {
		want = "PVRDMA_WC_RECV_RDMA_WITH_IMM"
	}
	if wc.Opcode != g.Const(want) || wc.ByteLen != uint32(e.size) {
		e.t.Fatalf("%s of %d bytes is received with opcode %d and %d bytes, want %s", e.op, e.size, wc.Opcode, wc.ByteLen,
			want)
	}
	var flags, imm uint32
	if strings.HasSuffix(e.op, "WITH_IMM") {
		flags, imm = g.Const("PVRDMA_WC_WITH_IMM"), e.imm
	}
	if wc.Flags != flags || imm != 0 && wc.Imm != imm {
		e.t.Fatalf("%s is received with flags %#x and immediate %#x, want %#x and %#x", e.op, wc.Flags, wc.Imm, flags, imm)
	}
}

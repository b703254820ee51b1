// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"golang.org/x/sys/unix"
)

// What the kernel's MAD layer asks for, drivers/infiniband/core/mad.c.
const (
	madSendWR   = 128
	madRecvWR   = 512
	madCQ       = 640 // both, rounded up to 1024 by the driver
	madSize     = 256
	madBuffer   = 40 + madSize // the GRH area comes first
	madPiece    = 512          // what the kernel's allocator makes of madBuffer
	madHeader   = 24
	gsiQPN      = 1
	gsiQKey     = 0x80010000
	madSendSGEs = 2
)

// GSI is the guest kernel's management queue pair: QP 1.
type GSI struct {
	PD *PD
	CQ *CQ
	QP *QP

	recv *ram.Buffer
	send *ram.Buffer
	// pending are completions that came before the one that was waited for.
	pending []WC
}

// StartGSI makes QP 1 as the kernel does when a device registers: every step is a command or a doorbell. It posts 512
// receives as the kernel does, or fewer if recvs says so and is not 0.
func StartGSI(c *Context, recvs int) (*GSI, error) {
	pd, err := c.AllocPD()
	if err != nil {
		return nil, err
	}
	g := &GSI{PD: pd}
	if g.CQ, err = c.CreateCQ(madCQ); err != nil {
		return nil, err
	}
	if err := g.CQ.ReqNotify(false); err != nil {
		return nil, err
	}
	g.QP, err = pd.CreateQP(QPInit{
		SendCQ: g.CQ, RecvCQ: g.CQ, Type: c.l.Const("PVRDMA_QPT_GSI"), MaxSendWR: madSendWR, MaxRecvWR: madRecvWR,
		MaxSendSGE: madSendSGEs, MaxRecvSGE: 1, SignalAll: true,
	})
	if err != nil {
		return nil, err
	}
	if g.QP.QPN == 0 {
		return nil, fmt.Errorf("the GSI queue pair has number 0, the MAD layer drops all it gets: %w", unix.EPROTO)
	}
	if recvs == 0 {
		recvs = madRecvWR
	}
	if err := g.start(recvs); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *GSI) start(recvs int) (err error) {
	for _, a := range []Attr{
		g.QP.Attr().WithState("INIT").With("PKEY_INDEX", "pkey_index", 0).With("QKEY", "qkey", gsiQKey),
		g.QP.Attr().WithState("RTR"),
		g.QP.Attr().WithState("RTS").With("SQ_PSN", "sq_psn", 0),
	} {
		if err := g.QP.Modify(a); err != nil {
			return err
		}
	}
	if err := g.CQ.ReqNotify(false); err != nil {
		return err
	}
	r := g.PD.Ctx.Dev.RAM
	if g.send, err = r.Buffer(ram.PageSize); err != nil {
		return err
	}
	if g.recv, err = r.Buffer(recvs * madPiece); err != nil {
		return err
	}
	for i := range recvs { // one doorbell for each, as at boot
		if err := g.post(i); err != nil {
			return err
		}
	}
	return nil
}

// post gives receive buffer i to the device, by its address in the guest.
func (g *GSI) post(i int) error {
	return g.QP.PostRecv(RecvWR{WRID: uint64(i), SGE: []SGE{{
		Addr: g.recv.Phys(i * madPiece), Length: madBuffer, LKey: g.PD.DMA.LKey,
	}}})
}

// Send sends a datagram of 256 bytes to QP 1 of a peer, in the two pieces that the MAD layer makes of it.
func (g *GSI) Send(p Path, data []byte, timeout time.Duration) error {
	if len(data) != madSize {
		return errInvalid("send a MAD of %d bytes", len(data))
	}
	copy(g.send.Bytes(), data)
	err := g.QP.PostSend(SendWR{
		WRID: madRecvWR, Opcode: g.QP.l.Const("PVRDMA_WR_SEND"), Flags: g.QP.l.Const("PVRDMA_SEND_SIGNALED"),
		AV: g.PD.AV(p), QPN: gsiQPN, QKey: gsiQKey,
		SGE: []SGE{
			{Addr: g.send.Phys(0), Length: madHeader, LKey: g.PD.DMA.LKey},
			{Addr: g.send.Phys(madHeader), Length: madSize - madHeader, LKey: g.PD.DMA.LKey},
		},
	})
	if err != nil {
		return err
	}
	wc, err := g.wait(true, timeout)
	if err != nil {
		return err
	}
	if wc.Status != 0 {
		return fmt.Errorf("the MAD completes as %#x with %s: %w", wc.WRID, g.QP.l.ConstName("PVRDMA_WC_", wc.Status),
			unix.EIO)
	}
	return nil
}

// wait takes the next completion of a send, or of a receive.
func (g *GSI) wait(send bool, timeout time.Duration) (WC, error) {
	wanted := func(wc WC) bool { return (wc.WRID == madRecvWR) == send }
	if i := slices.IndexFunc(g.pending, wanted); i >= 0 {
		wc := g.pending[i]
		g.pending = slices.Delete(g.pending, i, i+1)
		return wc, nil
	}
	for deadline := time.Now().Add(timeout); ; {
		wc, err := g.CQ.waitEvent(deadline)
		if err != nil || wanted(wc) {
			return wc, err
		}
		g.pending = append(g.pending, wc)
	}
}

// Poll takes a completion that has not been waited for, if there is one.
func (g *GSI) Poll() (WC, bool, error) {
	if n := len(g.pending); n != 0 {
		return g.pending[n-1], true, nil
	}
	return g.CQ.Poll()
}

// Recv waits for a datagram, and returns it with the header before it. Its buffer is posted again.
func (g *GSI) Recv(timeout time.Duration) (packet []byte, wc WC, err error) {
	if wc, err = g.wait(false, timeout); err != nil {
		return nil, wc, err
	}
	if wc.Status != 0 || wc.ByteLen > madBuffer {
		return nil, wc, fmt.Errorf("a receive of QP 1 completes with %s and %d bytes: %w",
			g.QP.l.ConstName("PVRDMA_WC_", wc.Status), wc.ByteLen, unix.EIO)
	}
	packet = bytes.Clone(g.recv.Bytes()[int(wc.WRID)*madPiece:][:wc.ByteLen])
	return packet, wc, g.post(int(wc.WRID))
}

// Stop destroys QP 1 and what belongs to it.
func (g *GSI) Stop() error {
	return errors.Join(g.QP.Destroy(), g.CQ.Destroy(), g.PD.Free(), g.recv.Free(), g.send.Free())
}

// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// queuePair creates a queue pair of the guest kernel with 16 requests each way and returns its completion queue's handle.
func (d *driver) queuePair() (qp, cq uint32) {
	d.t.Helper()
	return d.queuePairIn(d.pages(3))
}

// queuePairIn is queuePair with the three pages of the queue pair's rings.
func (d *driver) queuePairIn(rings []uint64) (qp, cq uint32) {
	d.t.Helper()
	var pd abi.CmdCreatePDResp
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, &pd)
	var c abi.CmdCreateCQResp
	d.must(&abi.CmdCreateCQReq{
		Hdr: hdr(abi.CmdCreateCQ), PDirDMA: d.directory(d.pages(2)), CQE: 64, NChunks: 2,
	}, &c)
	var q abi.CmdCreateQPRespV2
	d.must(&abi.CmdCreateQPReq{
		Hdr: hdr(abi.CmdCreateQP), PDirDMA: d.directory(rings), PDHandle: pd.PDHandle, SendCQHandle: c.CQHandle,
		RecvCQHandle: c.CQHandle, MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1, TotalChunks: 3, SendChunks: 1,
		QPType: abi.QPTypeRC,
	}, &q)
	return q.QPHandle, c.CQHandle
}

func TestASuccessIsToldByEveryWay(t *testing.T) {
	d := active(t, Poll)
	d.interrupts()
	e, h, body := d.command(&abi.CmdCreatePDReq{Hdr: abi.CmdHeader{Response: 0xabcdef, Cmd: abi.CmdCreatePD}})
	wantERR(t, "CREATE_PD", e, 0)
	if diff := cmp.Diff(abi.RespHeader{Response: 0xabcdef, Ack: 0x80000002}, h); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if n := d.interrupts(); n != [3]int64{1, 0, 0} {
		t.Errorf("interrupts %v, want vector 0 once", n)
	}
	for i, b := range body[24:] {
		if b != 0 {
			t.Fatalf("byte %d of the response is %#x", 24+i, b)
		}
	}
}

func TestAResponseIsAsLongAsTheLargestAndNoLonger(t *testing.T) {
	d := active(t, Poll)
	page := make([]byte, abi.PageSize)
	for i := range page {
		page[i] = 0xee
	}
	d.write(d.dsr.RespSlotDMA, page)
	d.command(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)})
	if diff := cmp.Diff(page[abi.CmdRespSize:], d.read(d.dsr.RespSlotDMA+abi.CmdRespSize, abi.PageSize-abi.CmdRespSize)); diff != "" {
		t.Error("bytes behind the response were written")
	}
}

// TestAFailureIsToldAsTheCommandsDriverLooksForIt: all commands but MODIFY_QP fail by ERR, and by an acknowledgement that is
// not theirs.
func TestAFailureIsToldAsTheCommandsDriverLooksForIt(t *testing.T) {
	d := active(t, Poll)
	for _, c := range []struct {
		req  request
		want unix.Errno
	}{
		{&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 7}, unix.EINVAL},
		{&abi.CmdQueryPKeyReq{Hdr: hdr(abi.CmdQueryPKey), PortNum: 1, Index: 1}, unix.EINVAL},
		{&abi.CmdCreateUCReq{Hdr: hdr(abi.CmdCreateUC)}, unix.EINVAL},
		{&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD), CtxHandle: 9}, unix.EINVAL},
		{&abi.CmdCreateMRReq{Hdr: hdr(abi.CmdCreateMR), PDHandle: 9}, unix.EINVAL},
		{&abi.CmdCreateCQReq{Hdr: hdr(abi.CmdCreateCQ), CQE: 8, NChunks: 2, PDirDMA: 0x1000}, unix.EFAULT},
		{&abi.CmdCreateQPReq{Hdr: hdr(abi.CmdCreateQP)}, unix.EINVAL},
		{&abi.CmdQueryQPReq{Hdr: hdr(abi.CmdQueryQP), QPHandle: 9}, unix.EINVAL},
		{&abi.CmdDestroyQPReq{Hdr: hdr(abi.CmdDestroyQP), QPHandle: 9}, unix.EINVAL},
		{&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: 9}, unix.EINVAL},
		{&abi.CmdCreateBindReq{Hdr: hdr(abi.CmdCreateBind), Index: 999}, unix.EINVAL},
		{&abi.CmdCreateSRQReq{Hdr: hdr(abi.CmdCreateSRQ)}, unix.EINVAL},
		{&abi.CmdModifySRQReq{Hdr: hdr(abi.CmdModifySRQ), SRQHandle: 9}, unix.EINVAL},
		{&abi.CmdQuerySRQReq{Hdr: hdr(abi.CmdQuerySRQ), SRQHandle: 9}, unix.EINVAL},
		{&abi.CmdDestroySRQReq{Hdr: hdr(abi.CmdDestroySRQ), SRQHandle: 9}, unix.EINVAL},
		{&abi.CmdResizeCQReq{Hdr: hdr(abi.CmdResizeCQ)}, unix.EOPNOTSUPP},
		{&abi.CmdHeader{Cmd: abi.CmdMax}, unix.EOPNOTSUPP},
		{&abi.CmdHeader{Cmd: 0xffffffff, Response: 5}, unix.EOPNOTSUPP},
	} {
		t.Run(fmt.Sprintf("%T", c.req), func(t *testing.T) {
			// A response with a body, of which nothing may be left.
			d.must(&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1}, nil)
			d.interrupts()
			e, h, body := d.command(c.req)
			wantERR(t, "the command", e, c.want)
			if h.Ack != 0 || h.Err != uint8(c.want) {
				t.Errorf("ack %#x, err %d, want 0 and %d", h.Ack, h.Err, uint8(c.want))
			}
			for i, b := range body[abi.RespHeaderSize:] {
				if b != 0 {
					t.Fatalf("byte %d of the response is %#x", abi.RespHeaderSize+i, b)
				}
			}
			if n := d.interrupts(); n != [3]int64{1, 0, 0} {
				t.Errorf("interrupts %v, want vector 0 once", n)
			}
		})
	}
}

func TestAFailureOfModifyIsInItsResponse(t *testing.T) {
	d := active(t, Poll)
	qp, _ := d.queuePair()
	modify := &abi.CmdModifyQPReq{Hdr: abi.CmdHeader{Response: 77, Cmd: abi.CmdModifyQP}, QPHandle: qp, AttrMask: 1}
	e, h, _ := d.command(modify)
	if e != 0 || h != (abi.RespHeader{Response: 77, Ack: 0x8000000a}) {
		t.Errorf("success: ERR %d, header %+v", e, h)
	}
	modify.QPHandle = 9
	e, h, _ = d.command(modify)
	if e != 0 || h != (abi.RespHeader{Response: 77, Ack: 0x8000000a, Err: uint8(unix.EINVAL)}) {
		t.Errorf("failure: ERR %d, header %+v", e, h)
	}
	if n := d.interrupts()[0]; n == 0 {
		t.Error("no interrupt")
	}
}

func TestAnErrorWithoutAnErrnoBecomesEIO(t *testing.T) {
	for err, want := range map[error]unix.Errno{
		errors.New("plain"): unix.EIO, unix.Errno(0): unix.EIO, unix.Errno(256): unix.EIO, unix.Errno(255): 255,
		fmt.Errorf("wrapped: %w", unix.ENOMEM): unix.ENOMEM,
	} {
		if got := errnoOf(err); got != want {
			t.Errorf("%v becomes %v, want %v", err, got, want)
		}
	}
}

func TestASuccessClearsTheErrorBefore(t *testing.T) {
	d := active(t, Poll)
	d.command(&abi.CmdDestroyPDReq{Hdr: hdr(abi.CmdDestroyPD), PDHandle: 9})
	if e, _, _ := d.command(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}); e != 0 {
		t.Errorf("ERR is %d", e)
	}
}

func TestACommandIsExecutedOnceTheRegisterWriteIsAnswered(t *testing.T) {
	d := active(t, Poll)
	b := make([]byte, abi.CmdReqSize)
	(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}).Encode(b)
	d.write(d.dsr.CmdSlotDMA, b)
	done := len(seen[pvrdma.CommandDone](d.seen))
	if err := d.s.WriteRegion(1, abi.RegRequest, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if len(seen[pvrdma.CommandDone](d.seen)) != done {
		t.Error("the answer waits for the command")
	}
	// The slot was copied: what is written into it now is too late.
	d.write(d.dsr.CmdSlotDMA, make([]byte, abi.CmdReqSize))
	d.s.Replied()
	got := seen[pvrdma.CommandDone](d.seen)
	if len(got) != done+1 || got[done].Cmd != abi.CmdCreatePD {
		t.Errorf("executed: %+v", got[done:])
	}
	d.s.Replied()
	if len(seen[pvrdma.CommandDone](d.seen)) != done+1 {
		t.Error("the command was executed twice")
	}
}

func TestWhatWaitsForItsAnswerIsForgottenByAReset(t *testing.T) {
	d := active(t, Trap)
	if err := d.s.WriteRegion(1, abi.RegRequest, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if err := d.s.WriteRegion(2, 0, []byte{1, 0, 0, 0x40}); err != nil {
		t.Fatal(err)
	}
	if err := d.s.Reset(); err != nil {
		t.Fatal(err)
	}
	d.config(pciCommand, 2, pciCommandMaster)
	d.probe()
	d.onWorker(func() {})
	if n := len(seen[pvrdma.CommandDone](d.seen)); n != 0 || len(d.seen.violations()) != 0 {
		t.Errorf("%d commands of the time before, violations %v", n, d.seen.violations())
	}
}

func TestADoorbellIsServedOnce(t *testing.T) {
	d := active(t, Trap)
	qp, _ := d.queuePair()
	before := d.fn.Counters().Doorbells
	d.doorbell(0, abi.UARQPOffset, abi.UARQPSend|qp)
	for range 5 {
		d.s.Replied()
	}
	d.must(&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1}, nil)
	if n := d.fn.Counters().Doorbells - before; n != 1 {
		t.Errorf("%d doorbells were served, want 1", n)
	}
}

func TestWithoutBusMasterNoCommandIsExecuted(t *testing.T) {
	d := active(t, Poll)
	d.command0()
	before := d.snapshot()
	d.config(pciCommand, 2, 0)
	wantERR(t, "REQUEST", d.try(abi.RegRequest), unix.ENODEV)
	d.onWorker(func() { d.s.events.AsyncEvent(abi.EventPortActive, 1) })
	d.unchanged(before, "without bus master")
	d.config(pciCommand, 2, pciCommandMaster)
	wantERR(t, "REQUEST", d.try(abi.RegRequest), unix.ENODEV)
	d.unchanged(before, "before a driver starts anew")
}

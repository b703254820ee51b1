// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"bytes"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

func TestWhatIsWrittenIntoTheRegionBeforeActivateIsNotLookedAt(t *testing.T) {
	d := attach(t, Poll)
	d.layout()
	if e := d.loadDSR(); e != 0 {
		t.Fatalf("DSRHIGH: ERR is %d", e)
	}
	d.write(d.dsrAddr, bytes.Repeat([]byte{0xff}, abi.DSRSize))
	d.reg(abi.RegIMR, 0)
	wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), 0)
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
}

// TestARegisterReadWaitsForNoOtherWork: the guest's processor stands still until it has its answer, so that it may not wait for
// what the worker does for others.
func TestARegisterReadWaitsForNoOtherWork(t *testing.T) {
	d := active(t, Poll)
	busy, rest := make(chan struct{}), make(chan struct{})
	go d.onWorker(func() {
		close(busy)
		<-rest
	})
	<-busy
	read := make(chan struct{})
	go func() {
		for _, r := range []uint64{abi.RegVersion, abi.RegErr, abi.RegICR, abi.RegIMR, abi.RegMACLow} {
			d.get(r)
		}
		d.reg(abi.RegIMR, 1)
		d.doorbell(0, abi.UARCQOffset, abi.UARCQArm|1)
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(10 * time.Second):
		t.Error("a register waits for the worker")
	}
	close(rest)
	<-read
}

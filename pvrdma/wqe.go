// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

var (
	errTooManySGE = fmt.Errorf("work request has more elements than the queue allows: %w", unix.EINVAL)
	errBadOpcode  = fmt.Errorf("work request has an opcode that the queue pair cannot carry out: %w", unix.EOPNOTSUPP)
	errBadAddress = fmt.Errorf("work request has an address of another protection domain or port: %w", unix.EINVAL)
)

// decodeSend copies the send request in a slot out of guest memory, once, and translates the copy. What breaks a rule of
// the device's is returned as wrong, one of the errors above, and goes into wr.Status too. An error means that the memory
// failed.
func (q *queuePair) decodeSend(slot uint32, wr *hostverbs.SendWR) (wrong, err error) {
	buf := q.dev.wqe[:min(q.sq.stride, maxWQESize)]
	if err := q.pages.Read(q.sq.base+uint64(q.sq.ring.Slot(slot))*q.sq.stride, buf); err != nil {
		return nil, err
	}
	var hdr abi.SendWQEHdr
	if err := hdr.Decode(buf); err != nil {
		return nil, err
	}
	wr.WRID = hdr.WRID
	wr.Flags = sendFlags(hdr.SendFlags)
	wr.Imm = hdr.Ex
	wr.NumSGE = 0
	wr.Reg = hostverbs.RegWR{}
	wr.Status = hostverbs.WCSuccess
	wr.Opcode = q.operation(hdr.Opcode)
	switch {
	case wr.Opcode == hostverbs.OpInvalid:
		wrong = errBadOpcode
	case hdr.NumSGE > q.sq.maxSGE:
		wrong = errTooManySGE
	default:
		wrong = q.decodeTarget(buf[abi.SendWQEWROffset:], wr)
	}
	if wrong != nil {
		wr.Status = hostverbs.WCLocQPOpErr
		return wrong, nil
	}
	wr.NumSGE = uint8(hdr.NumSGE)
	return nil, decodeSGEs(buf[abi.SendWQEHdrSize:], wr.SGE[:hdr.NumSGE])
}

// breaches reports those of the first n requests that decodeSend found wrong. They are reported when the engine has taken
// them: one that it has not is decoded once more.
func (d *Device) breaches(n int) {
	for _, wrong := range d.wrong[:n] {
		if wrong != nil {
			d.violation(BadWQE, wrong)
		}
	}
}

// datagrams says whether each request of the queue pair has its own address.
func (q *queuePair) datagrams() bool { return q.typ == abi.QPTypeUD || q.typ == abi.QPTypeGSI }

// decodeTarget reads from the union of a send request only what its operation uses: user space leaves the rest as it
// was.
func (q *queuePair) decodeTarget(union []byte, wr *hostverbs.SendWR) (wrong error) {
	wr.RemoteAddr, wr.RKey, wr.RemoteQPN, wr.RemoteQKey = 0, 0, 0, 0
	wr.CompareAdd, wr.Swap = 0, 0
	wr.AH = hostverbs.AHAttr{}
	switch wr.Opcode {
	case hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm, hostverbs.OpRDMARead:
		var x abi.RDMAWR
		_ = x.Decode(union) // the buffer holds a whole header
		wr.RemoteAddr, wr.RKey = x.RemoteAddr, x.RKey
	case hostverbs.OpAtomicCmpAndSwp, hostverbs.OpAtomicFetchAndAdd:
		decodeAtomic(union, wr)
	case hostverbs.OpRegMR:
		return q.dev.decodeFastReg(union, wr)
	case hostverbs.OpSend, hostverbs.OpSendWithImm:
		if q.datagrams() {
			return q.decodeAddress(union, wr)
		}
	}
	return nil
}

// decodeAtomic reads what an atomic operation uses: an addition has one operand.
func decodeAtomic(union []byte, wr *hostverbs.SendWR) {
	var x abi.AtomicWR
	_ = x.Decode(union)
	wr.RemoteAddr, wr.RKey, wr.CompareAdd = x.RemoteAddr, x.RKey, x.CompareAdd
	if wr.Opcode == hostverbs.OpAtomicCmpAndSwp {
		wr.Swap = x.Swap
	}
}

// decodeAddress reads a datagram's address, which no command has checked: user space makes it up, and the guest kernel does
// not see it. What it says of a GID table and of an address is the engine's to judge.
func (q *queuePair) decodeAddress(union []byte, wr *hostverbs.SendWR) (wrong error) {
	var x abi.UDWR
	_ = x.Decode(union)
	if x.AV.PortNum() != portNum || x.AV.PDHandle() != q.pd.handle {
		return errBadAddress
	}
	wr.RemoteQPN, wr.RemoteQKey = x.RemoteQPN, x.RemoteQKey
	wr.AH = hostverbs.AHAttr{
		DGID: hostverbs.GID(x.AV.DGID), FlowLabel: x.AV.FlowLabel(), SGIDIndex: x.AV.GIDIndex,
		HopLimit: x.AV.HopLimit, TrafficClass: x.AV.TrafficClass(), GRH: true, PortNum: portNum,
	}
	return nil
}

// operation translates an opcode as far as the queue pair's type allows it. A process of the guest can write any value:
// what only the guest kernel may use is not there for it.
func (q *queuePair) operation(op abi.WROpcode) hostverbs.WROpcode {
	switch {
	case op == abi.WRSend:
		return hostverbs.OpSend
	case q.typ == abi.QPTypeGSI:
		return hostverbs.OpInvalid
	case op == abi.WRSendWithImm:
		return hostverbs.OpSendWithImm
	case q.typ == abi.QPTypeUD:
		return hostverbs.OpInvalid
	}
	switch op {
	case abi.WRRDMAWrite:
		return hostverbs.OpRDMAWrite
	case abi.WRRDMAWriteWithImm:
		return hostverbs.OpRDMAWriteWithImm
	case abi.WRRDMARead:
		return hostverbs.OpRDMARead
	case abi.WRAtomicCmpAndSwp:
		return hostverbs.OpAtomicCmpAndSwp
	case abi.WRAtomicFetchAndAdd:
		return hostverbs.OpAtomicFetchAndAdd
	}
	return q.kernelOperation(op)
}

// kernelOperation translates the opcodes that the guest kernel alone may use. User space numbers its own differently from 7
// on and passes them through, so that there they stand for anything. Masked atomics are for nobody: the driver translates
// them, and does not write their operands.
func (q *queuePair) kernelOperation(op abi.WROpcode) hostverbs.WROpcode {
	if q.ctx != q.dev.kernel {
		return hostverbs.OpInvalid
	}
	switch op {
	case abi.WRSendWithInv:
		return hostverbs.OpSendWithInv
	case abi.WRLocalInv:
		return hostverbs.OpLocalInv
	case abi.WRFastRegMR:
		return hostverbs.OpRegMR
	}
	return hostverbs.OpInvalid
}

// decodeRecv copies the oldest receive request of a queue out of guest memory.
func (d *Device) decodeRecv(pages *guestmem.Pages, w *workQueue, wr *hostverbs.RecvWR) error {
	buf := d.wqe[:min(w.stride, maxWQESize)]
	if err := pages.Read(w.base+uint64(w.ring.Slot(w.cons))*w.stride, buf); err != nil {
		return err
	}
	var hdr abi.RecvWQEHdr
	if err := hdr.Decode(buf); err != nil {
		return err
	}
	wr.WRID = hdr.WRID
	wr.NumSGE = 0
	wr.Status = hostverbs.WCSuccess
	if hdr.NumSGE > w.maxSGE {
		wr.Status = hostverbs.WCLocQPOpErr
		d.violation(BadWQE, errTooManySGE)
		return nil
	}
	wr.NumSGE = uint8(hdr.NumSGE)
	return decodeSGEs(buf[abi.RecvWQEHdrSize:], wr.SGE[:hdr.NumSGE])
}

// decodeSGEs decodes in place: a copy of what was just stored in parts waits for these stores.
func decodeSGEs(b []byte, sges []hostverbs.SGE) error {
	for i := range sges {
		if err := (*abi.SGE)(&sges[i]).Decode(b[i*abi.SGESize:]); err != nil {
			return err
		}
	}
	return nil
}

// encodeCompletion makes the guest's completion entry in e, which is zero. The queue pair is named by its handle: an entry
// with another number would block the guest's queue for ever.
func (q *queuePair) encodeCompletion(e *abi.CQE, wc *hostverbs.WC) {
	// Field by field: a copy of the whole waits for the stores of its parts.
	e.WRID = wc.WRID
	e.QP = uint64(q.handle)
	e.Opcode = wcOpcode(wc.Opcode)
	e.Status = abi.WCStatus(wc.Status)
	e.ByteLen = wc.ByteLen
	e.SrcQP = wc.SrcQP
	e.PKeyIndex = wc.PKeyIndex
	e.SL = wc.SL
	e.PortNum = portNum
	if wc.Flags&hostverbs.WCGRH != 0 {
		e.WCFlags |= abi.WCFlagGRH
	}
	if wc.Flags&hostverbs.WCWithNetworkHdrType != 0 {
		e.NetworkHdrType = networkType(wc.NetworkHdrType)
		if q.ctx == q.dev.kernel { // in user space the bit means something else
			e.WCFlags |= abi.WCFlagWithNetworkHdrType
		}
	}
	if wc.Flags&hostverbs.WCWithImm != 0 {
		e.WCFlags |= abi.WCFlagWithImm
		e.ImmData = wc.Imm
	}
	if wc.Flags&hostverbs.WCWithInvalidate != 0 && q.ctx == q.dev.kernel { // a process has no region to invalidate
		e.WCFlags |= abi.WCFlagWithInvalidate
		e.ImmData = wc.Imm // the key has the immediate's place
	}
}

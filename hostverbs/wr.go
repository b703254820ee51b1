// SPDX-License-Identifier: Apache-2.0

package hostverbs

// WROpcode is the operation of a send work request, enum ib_wr_opcode in meaning; the values are ours.
type WROpcode uint8

// Operations. OpInvalid stands for what a guest asked for and no engine knows: it completes with WCLocQPOpErr.
const (
	OpInvalid WROpcode = iota
	OpSend
	OpSendWithImm
	OpSendWithInv
	OpRDMAWrite
	OpRDMAWriteWithImm
	OpRDMARead
	OpAtomicCmpAndSwp
	OpAtomicFetchAndAdd
	OpLocalInv
	OpRegMR
)

// SendFlags is enum ib_send_flags (include/rdma/ib_verbs.h).
type SendFlags uint8

// Send flags.
const (
	SendFence     SendFlags = 1 << 0
	SendSignaled  SendFlags = 1 << 1
	SendSolicited SendFlags = 1 << 2
)

// MaxSGE is the most scatter/gather entries that any engine takes in one work request.
const MaxSGE = 16

// MaxMsgSize is the most bytes that one message carries: 2^31, as the InfiniBand architecture says.
const MaxMsgSize = 1 << 31

// SGE is struct ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Length is the number of bytes that an SGE list names. It has 64 bits: 16 times 4 GiB do not wrap.
func Length(sges []SGE) uint64 {
	total := uint64(0)
	for i := range sges {
		total += uint64(sges[i].Length)
	}
	return total
}

// SendWR is a send work request, struct ibv_send_wr without pointers, so that a slice of them needs no allocation.
type SendWR struct {
	WRID   uint64
	Opcode WROpcode
	Flags  SendFlags
	NumSGE uint8
	// Imm is the immediate in the byte order in which it lay in memory, or the key to invalidate.
	Imm uint32
	// RemoteAddr and RKey name the peer's memory, or what an OpRegMR request gives a region: the address of its first byte
	// and its key.
	RemoteAddr uint64
	RKey       uint32
	// CompareAdd and Swap are the operands of the atomics.
	CompareAdd, Swap uint64
	// Reg is the rest of what an OpRegMR request gives a region.
	Reg RegWR
	// RemoteQPN, RemoteQKey and AH address a datagram.
	RemoteQPN, RemoteQKey uint32
	AH                    AHAttr
	// Status, if not WCSuccess, is what the device found wrong with the request before it reached the engine: the
	// engine completes the request with it, in order, without doing anything else.
	Status WCStatus
	SGE    [MaxSGE]SGE
}

// RegWR is what struct ib_reg_wr and its struct ib_mr say of a fast registration, but for the address and the key.
type RegWR struct {
	// List says where the page list is. The device alone understands it, see PageSource.
	List uint64
	// Pages is the number of pages of the list, of guestmem.PageSize bytes. The region begins in the first of them, at the
	// offset that the low bits of its address say.
	Pages uint32
	// Length is the region's length in bytes.
	Length uint32
	Access AccessFlags
}

// RecvWR is a receive work request, struct ibv_recv_wr.
type RecvWR struct {
	WRID   uint64
	NumSGE uint8
	// Status, if not WCSuccess, is what the device found wrong with the request; the engine completes it with that.
	Status WCStatus
	SGE    [MaxSGE]SGE
}

// WCStatus is enum ib_wc_status (include/rdma/ib_verbs.h); pvrdma's CQE status has the same values.
type WCStatus uint8

// Completion statuses.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
)

// WCOpcode is the operation that a completion reports, enum ib_wc_opcode in meaning; the values are ours.
type WCOpcode uint8

// Completion operations.
const (
	WCOpSend WCOpcode = iota
	WCOpRDMAWrite
	WCOpRDMARead
	WCOpCompSwap
	WCOpFetchAdd
	WCOpLocalInv
	WCOpRegMR
	WCOpRecv
	WCOpRecvRDMAWithImm
)

// WCFlags is enum ib_wc_flags (include/rdma/ib_verbs.h).
type WCFlags uint8

// Completion flags.
const (
	WCGRH                WCFlags = 1 << 0
	WCWithImm            WCFlags = 1 << 1
	WCWithInvalidate     WCFlags = 1 << 2
	WCWithNetworkHdrType WCFlags = 1 << 6
)

// GRHBytes is the room at the begin of a datagram's receive for the header that it came with, in bytes, see Network.
const GRHBytes = 40

// WC is a work completion, struct ibv_wc.
type WC struct {
	WRID   uint64
	Status WCStatus
	Opcode WCOpcode
	Flags  WCFlags
	// ByteLen is how many bytes arrived, of a datagram with the GRHBytes before them.
	ByteLen uint32
	// Imm is the immediate as SendWR.Imm carried it, or the key that was invalidated.
	Imm       uint32
	SrcQP     uint32
	PKeyIndex uint16
	SL        uint8
	// NetworkHdrType says what a datagram's header is; with WCWithNetworkHdrType.
	NetworkHdrType Network
	// Solicited says that the sender asked for a solicited event.
	Solicited bool
}

// EventType is an asynchronous event of a QP or an SRQ, enum ib_event_type (include/rdma/ib_verbs.h).
type EventType uint8

// Events that an engine reports of a QP, and the last one of an SRQ.
const (
	EventQPFatal EventType = iota
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventQPLastWQEReached
	EventSRQLimitReached
)

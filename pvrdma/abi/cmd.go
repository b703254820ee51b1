// SPDX-License-Identifier: Apache-2.0

package abi

// Cmd is the code of a command (PVRDMA_CMD_* of pvrdma_dev_api.h), CmdHeader.Cmd.
type Cmd uint32

// The values of [Cmd].
const (
	CmdQueryPort   Cmd = 0
	CmdQueryPKey   Cmd = 1
	CmdCreatePD    Cmd = 2
	CmdDestroyPD   Cmd = 3
	CmdCreateMR    Cmd = 4
	CmdDestroyMR   Cmd = 5
	CmdCreateCQ    Cmd = 6
	CmdResizeCQ    Cmd = 7
	CmdDestroyCQ   Cmd = 8
	CmdCreateQP    Cmd = 9
	CmdModifyQP    Cmd = 10
	CmdQueryQP     Cmd = 11
	CmdDestroyQP   Cmd = 12
	CmdCreateUC    Cmd = 13
	CmdDestroyUC   Cmd = 14
	CmdCreateBind  Cmd = 15
	CmdDestroyBind Cmd = 16
	CmdCreateSRQ   Cmd = 17
	CmdModifySRQ   Cmd = 18
	CmdQuerySRQ    Cmd = 19
	CmdDestroySRQ  Cmd = 20

	CmdFirst     = CmdQueryPort
	CmdMax   Cmd = 21 // the first code that is no command
)

// Bounds of the response codes (PVRDMA_CMD_*_RESP of pvrdma_dev_api.h).
const (
	AckFirst uint32 = 1 << 31
	AckMax   uint32 = AckFirst + uint32(CmdMax)
)

// Sizes of the two slots' contents in bytes: union pvrdma_cmd_req and pvrdma_cmd_resp of
// pvrdma_dev_api.h. Linux copies so much whatever the command; bytes beyond the command's
// own structure are left over from the guest kernel's stack.
const (
	CmdReqSize  = CmdModifyQPReqSize
	CmdRespSize = CmdQueryQPRespSize
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (c Cmd) String() string {
	return enumString(uint32(c), []string{
		CmdQueryPort:   "QUERY_PORT",
		CmdQueryPKey:   "QUERY_PKEY",
		CmdCreatePD:    "CREATE_PD",
		CmdDestroyPD:   "DESTROY_PD",
		CmdCreateMR:    "CREATE_MR",
		CmdDestroyMR:   "DESTROY_MR",
		CmdCreateCQ:    "CREATE_CQ",
		CmdResizeCQ:    "RESIZE_CQ",
		CmdDestroyCQ:   "DESTROY_CQ",
		CmdCreateQP:    "CREATE_QP",
		CmdModifyQP:    "MODIFY_QP",
		CmdQueryQP:     "QUERY_QP",
		CmdDestroyQP:   "DESTROY_QP",
		CmdCreateUC:    "CREATE_UC",
		CmdDestroyUC:   "DESTROY_UC",
		CmdCreateBind:  "CREATE_BIND",
		CmdDestroyBind: "DESTROY_BIND",
		CmdCreateSRQ:   "CREATE_SRQ",
		CmdModifySRQ:   "MODIFY_SRQ",
		CmdQuerySRQ:    "QUERY_SRQ",
		CmdDestroySRQ:  "DESTROY_SRQ",
	})
}

// Valid reports whether c is a command of the header.
func (c Cmd) Valid() bool { return c < CmdMax }

// Ack returns the code that RespHeader.Ack has in an answer to c.
func (c Cmd) Ack() uint32 { return AckFirst + uint32(c) }

// Noop reports whether the header calls c's response a NOOP: it has no structure.
func (c Cmd) Noop() bool {
	switch c {
	case CmdDestroyPD, CmdDestroyMR, CmdDestroyCQ, CmdDestroyUC, CmdCreateBind, CmdDestroyBind:
		return true
	}
	return false
}

// AwaitsResponse reports whether Linux waits for the response of c (pvrdma_cmd_post with a
// response, in pvrdma_*.c). For the others the read of RegErr is the end of the command.
// Linux never sends RESIZE_CQ; it counts as waiting because its response has a structure.
func (c Cmd) AwaitsResponse() bool {
	switch c {
	case CmdDestroyQP, CmdModifySRQ, CmdDestroySRQ:
		return false
	}
	return c.Valid() && !c.Noop()
}

// ReqSize returns the size of c's request in bytes, or 0 if c is no command.
func (c Cmd) ReqSize() int {
	if !c.Valid() {
		return 0
	}
	return [CmdMax]int{
		CmdQueryPort:   CmdQueryPortReqSize,
		CmdQueryPKey:   CmdQueryPKeyReqSize,
		CmdCreatePD:    CmdCreatePDReqSize,
		CmdDestroyPD:   CmdDestroyPDReqSize,
		CmdCreateMR:    CmdCreateMRReqSize,
		CmdDestroyMR:   CmdDestroyMRReqSize,
		CmdCreateCQ:    CmdCreateCQReqSize,
		CmdResizeCQ:    CmdResizeCQReqSize,
		CmdDestroyCQ:   CmdDestroyCQReqSize,
		CmdCreateQP:    CmdCreateQPReqSize,
		CmdModifyQP:    CmdModifyQPReqSize,
		CmdQueryQP:     CmdQueryQPReqSize,
		CmdDestroyQP:   CmdDestroyQPReqSize,
		CmdCreateUC:    CmdCreateUCReqSize,
		CmdDestroyUC:   CmdDestroyUCReqSize,
		CmdCreateBind:  CmdCreateBindReqSize,
		CmdDestroyBind: CmdDestroyBindReqSize,
		CmdCreateSRQ:   CmdCreateSRQReqSize,
		CmdModifySRQ:   CmdModifySRQReqSize,
		CmdQuerySRQ:    CmdQuerySRQReqSize,
		CmdDestroySRQ:  CmdDestroySRQReqSize,
	}[c]
}

// PeekCmd returns the command of the request at the front of b; EINVAL if b is shorter
// than a CmdHeader.
func PeekCmd(b []byte) (Cmd, error) {
	var h CmdHeader
	if err := h.Decode(b); err != nil {
		return 0, err
	}
	return h.Cmd, nil
}

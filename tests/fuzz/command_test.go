// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"strings"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
)

// commands are the headers' requests, in the order of their codes.
var commands = []string{
	"query_port", "query_pkey", "create_pd", "destroy_pd", "create_mr", "destroy_mr", "create_cq", "resize_cq", "destroy_cq",
	"create_qp", "modify_qp", "query_qp", "destroy_qp", "create_uc", "destroy_uc", "create_bind", "destroy_bind", "create_srq",
	"modify_srq", "query_srq", "destroy_srq",
}

// maxPatches bounds how much of a request a script changes.
const maxPatches = 4

// command executes one that is honest but for a few fields.
func command(w *world, s *script) {
	name := pick(s, commands)
	req := w.honest(name, s)
	for range s.below(maxPatches) {
		w.field(s, req)
	}
	w.post(req.Bytes())
}

// anyCommand executes any bytes.
func anyCommand(w *world, s *script) { w.post(s.bytes(w.L.Size("pvrdma_cmd_req"))) }

// post executes a request. Its verdict and the counters must agree, and its answer must be whole.
func (w *world) post(req []byte) {
	w.t.Helper()
	if w.quiet {
		w.Settle()
	}
	w.Seen.Take()
	before := w.look()
	a := w.Post(req)
	if !w.quiet {
		return
	}
	failed := a.Reg != 0
	if w.L.View("pvrdma_cmd_hdr", req).Get32("cmd") == w.Const("PVRDMA_CMD_MODIFY_QP") {
		failed = failed || a.Header.Get("err") != 0 && a.Header.Get32("ack") == w.Const("PVRDMA_CMD_MODIFY_QP_RESP")
	}
	w.Settle()
	moved := w.Seen.Take()
	if n := rejections(moved); failed && n != 1 && (!w.busy || n == 0) {
		w.t.Errorf("command %d fails with ERR %d, and the counters that moved are %v", req[8], a.Reg, moved)
	}
	if failed && before != nil {
		if diff := before.Diff(w.State()); diff != "" {
			w.t.Errorf("command %d fails with ERR %d (%v), and the device has changed:\n%s", req[8], a.Reg, w.Seen.Last(), diff)
		}
	}
	if !failed {
		w.learn(req, a)
	}
}

// look returns the device's state before a command: not while work is under way, which changes it, too, nor while a fuzzer runs, which would have a tenth of the inputs.
func (w *world) look() *inproc.State {
	const oneOf = 4 // commands: a look takes as long as several
	w.commands++
	if !w.quiet || w.busy || fuzzing() || w.commands%oneOf != 0 {
		return nil
	}
	s := w.State()
	return &s
}

// learn remembers the handles and keys of what was made.
func (w *world) learn(req []byte, a inproc.Answer) {
	const most = 64
	code := int(w.L.View("pvrdma_cmd_hdr", req).Get32("cmd"))
	if code >= len(commands) || !strings.HasPrefix(commands[code], "create_") || len(w.numbers) > most {
		return
	}
	// Every response begins with handles and keys; none has more than a region's.
	r := w.L.View("pvrdma_cmd_create_mr_resp", a.Slot)
	w.numbers = append(w.numbers, r.Get32("mr_handle"), r.Get32("lkey"), r.Get32("rkey"))
}

// honest is a request that would succeed, as far as the guest still has what it began with.
func (w *world) honest(name string, s *script) layout.View {
	req := w.Request(name)
	switch name {
	case "query_port", "query_pkey":
		return req.Set("port_num", 1)
	case "create_pd":
		return req.Set("ctx_handle", uint64(w.ctx)*uint64(s.u8()%2))
	case "create_mr":
		return w.honestMR(s)
	case "create_cq":
		return w.CQRequest(w.ctx, 64, w.cq.Object)
	case "create_qp":
		return w.honestQP(s)
	case "modify_qp":
		return w.honestModify(s)
	case "create_srq":
		return w.SRQRequest(w.pd, w.srq.Object)
	case "modify_srq", "query_srq", "destroy_srq":
		return w.honestSRQ(req, s)
	case "create_uc":
		return req.Set("pfn64", inproc.UARPFN+uint64(s.u8()%inproc.MaxUAR))
	case "create_bind":
		return w.BindRequest(s.u8() % 4)
	case "destroy_bind":
		n := s.u8() % 4
		return req.Set("index", uint64(n)).SetBytes("dest_gid", w.GID(n))
	}
	if fields := fieldsOf(w.L, req.Name()); strings.HasSuffix(fields[3], "_handle") {
		req.Set(fields[3], uint64(pick(s, w.numbers)))
	}
	return req
}

// honestMR registers the program's memory, or all memory for the kernel.
func (w *world) honestMR(s *script) layout.View {
	if s.u8()%4 != 3 {
		return w.MRRequest(w.pd, 7, w.mr.Object)
	}
	return w.Request("create_mr").Set("pd_handle", uint64(w.kpd)).Set("flags", uint64(w.Const("PVRDMA_MR_FLAG_DMA"))).
		Set("access_flags", 1)
}

// honestQP makes a queue pair of the program, or the kernel's GSI queue pair.
func (w *world) honestQP(s *script) layout.View {
	switch s.u8() % 4 {
	case 3:
	case 2:
		return w.sharedQP(w.sqp.Object)
	default:
		return w.QPRequest(w.pd, w.cq.Handle, w.cq.Handle, w.qp.Object)
	}
	return w.QPRequest(w.kpd, w.kcq.Handle, w.kcq.Handle, w.gsi.Object).Set("qp_type", uint64(w.Const("PVRDMA_QPT_GSI")))
}

// honestSRQ changes, asks for or ends a shared receive queue, mostly the first. The limit is one that a queue can have.
func (w *world) honestSRQ(req layout.View, s *script) layout.View {
	srq := w.srq.Handle
	if s.u8()%4 == 3 {
		srq = pick(s, w.numbers)
	}
	if req.Set("srq_handle", uint64(srq)); req.Name() == "pvrdma_cmd_modify_srq" {
		req.Set("attr_mask", 2).Set("attrs.srq_limit", uint64(s.u8()%(inproc.SRQDepth+1)))
	}
	return req
}

func (w *world) honestModify(s *script) layout.View {
	qp := w.qp.Handle
	if s.u8()%4 == 3 {
		qp = pick(s, w.numbers)
	}
	switch s.u8() % 8 {
	case 0:
		return w.ToInit(qp)
	case 1:
		return w.ToRTR(qp, inproc.Peer{GID: w.n.GID(0), QPN: w.n.qp.QPN})
	case 2:
		return w.ToRTS(qp)
	case 3:
		return w.ToState(qp, "SQD")
	case 4:
		return w.ToState(qp, "ERR")
	case 5:
		return w.ToState(qp, "RESET")
	case 6:
		return w.ToRTR(qp, inproc.Peer{GID: w.GID(0), QPN: w.qp.QPN})
	}
	return w.ToState(qp, "RTS")
}

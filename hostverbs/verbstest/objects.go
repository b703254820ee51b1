// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// objectCases are about creating and destroying.
func objectCases() []Case {
	return append([]Case{
		{"what is beyond a guest's limit is ENOMEM, and there is room again afterwards", limits},
		{"what is in use cannot be freed", inUse},
		{"a shared receive queue in use cannot be freed, nor its domain", sharedInUse},
		{"objects of another guest, or that are gone, are refused", foreignObjects},
		{"sizes and types that the engine does not have are refused", badCreates},
		{"a registration that makes no sense is refused", badRegistrations},
		{"keys are not used again soon", keysAreNew},
		{"a closed context does nothing", closedContext},
	}, numberCases()...)
}

// want fails if an error is not the errno expected (nil: success).
func (w *world) want(what string, got, want error) {
	w.t.Helper()
	if !errors.Is(got, want) {
		w.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// initAttr is an RC queue pair on the completion queue.
func initAttr(cq hostverbs.CQ) *hostverbs.QPInitAttr {
	return &hostverbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Cap: qpCap(), Type: hostverbs.QPTypeRC}
}

// mustCQ creates a completion queue.
func (g *guest) mustCQ() hostverbs.CQ {
	g.w.t.Helper()
	cq, err := g.ctx.CreateCQ(1)
	if err != nil {
		g.w.t.Fatalf("create CQ: %v", err)
	}
	return cq
}

// attrOf describes memory of the guest for a registration.
func (g *guest) attrOf(n int) hostverbs.MRAttr {
	g.w.t.Helper()
	mem, err := g.space.Pin(g.takePages((n+page-1)/page, false), guestmem.ProtRead|guestmem.ProtWrite)
	if err != nil {
		g.w.t.Fatalf("pin: %v", err)
	}
	return hostverbs.MRAttr{Memory: mem, Start: 0x1000, Length: uint64(n), Access: everything}
}

func limits(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guestWith(hostverbs.Limits{MaxQP: 2, MaxCQ: 3, MaxMR: 4, MaxPD: 5, MaxSRQ: 2})
	var cqs []hostverbs.CQ
	for range 3 {
		cqs = append(cqs, g.mustCQ())
	}
	_, err := g.ctx.CreateCQ(1)
	w.want("fourth of three CQs", err, unix.ENOMEM)

	for range 4 { // the guest has one
		g.otherPD()
	}
	_, err = g.ctx.AllocPD()
	w.want("sixth of five PDs", err, unix.ENOMEM)

	attr := g.attrOf(page)
	var mrs []hostverbs.MR
	for range 4 {
		m, err := g.ctx.RegMR(g.pd, attr)
		w.want("MR", err, nil)
		mrs = append(mrs, m)
	}
	_, err = g.ctx.RegMR(g.pd, attr)
	w.want("fifth of four MRs", err, unix.ENOMEM)
	w.want("deregister", mrs[0].Dereg(), nil)
	_, err = g.ctx.RegMR(g.pd, attr)
	w.want("MR after one was deregistered", err, nil)

	var qps []hostverbs.QP
	for range 2 {
		q, err := g.ctx.CreateQP(g.pd, initAttr(cqs[0]), &device{})
		w.want("QP", err, nil)
		qps = append(qps, q)
	}
	_, err = g.ctx.CreateQP(g.pd, initAttr(cqs[0]), &device{})
	w.want("third of two QPs", err, unix.ENOMEM)
	w.want("destroy", qps[0].Destroy(), nil)
	_, err = g.ctx.CreateQP(g.pd, initAttr(cqs[0]), &device{})
	w.want("QP after one was destroyed", err, nil)

	first := g.newPool(g.pd, poolAttr())
	g.newPool(g.pd, poolAttr())
	_, err = g.ctx.CreateSRQ(g.pd, poolAttr(), &pool{})
	w.want("third of two SRQs", err, unix.ENOMEM)
	w.want("destroy", first.srq.Destroy(), nil)
	g.newPool(g.pd, poolAttr())
}

func inUse(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	pd, scq, rcq := g.otherPD(), g.mustCQ(), g.mustCQ()
	init := initAttr(scq)
	init.RecvCQ = rcq
	q, err := g.ctx.CreateQP(pd, init, &device{})
	w.want("create QP", err, nil)
	w.want("send CQ of a QP", scq.Destroy(), unix.EBUSY)
	w.want("receive CQ of a QP", rcq.Destroy(), unix.EBUSY)
	w.want("PD of a QP", pd.Dealloc(), unix.EBUSY)
	w.want("destroy QP", q.Destroy(), nil)
	m, err := g.ctx.RegMR(pd, g.attrOf(10))
	w.want("register", err, nil)
	w.want("PD of an MR", pd.Dealloc(), unix.EBUSY)
	w.want("deregister", m.Dereg(), nil)
	for what, fn := range map[string]func() error{"send CQ": scq.Destroy, "receive CQ": rcq.Destroy, "PD": pd.Dealloc} {
		w.want(what+" that is free", fn(), nil)
		w.want(what+" that is gone", fn(), unix.EINVAL)
	}
	w.want("QP that is gone", q.Destroy(), unix.EINVAL)
	w.want("MR that is gone", m.Dereg(), unix.EINVAL)
	_, err = q.Query()
	w.want("query of a QP that is gone", err, unix.EINVAL)
	w.want("modify of a QP that is gone", q.Modify(&hostverbs.QPAttr{}, 0), unix.EINVAL)
}

func sharedInUse(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	pd := g.otherPD()
	p := g.newPool(pd, poolAttr())
	w.want("PD of an SRQ", pd.Dealloc(), unix.EBUSY)
	init := initAttr(g.mustCQ())
	init.SRQ = p.srq
	q, err := g.ctx.CreateQP(g.pd, init, &device{})
	w.want("create QP", err, nil)
	w.want("SRQ of a QP", p.srq.Destroy(), unix.EBUSY)
	w.want("destroy QP", q.Destroy(), nil)
	w.want("SRQ that is free", p.srq.Destroy(), nil)
	w.want("SRQ that is gone", p.srq.Destroy(), unix.EINVAL)
	_, err = p.srq.Query()
	w.want("query of an SRQ that is gone", err, unix.EINVAL)
	w.want("modify of an SRQ that is gone", p.srq.Modify(&hostverbs.SRQAttr{}, hostverbs.SRQLimit), unix.EINVAL)
	_, err = g.ctx.CreateQP(g.pd, init, &device{})
	w.want("QP with an SRQ that is gone", err, unix.EINVAL)
	w.want("PD that is free", pd.Dealloc(), nil)
}

func foreignObjects(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	cqA, cqB := a.mustCQ(), b.mustCQ()
	gonePD, goneCQ := a.otherPD(), a.mustCQ()
	w.want("dealloc", gonePD.Dealloc(), nil)
	w.want("destroy", goneCQ.Destroy(), nil)
	for what, pd := range map[string]hostverbs.PD{"nil": nil, "another guest's": b.pd, "gone": gonePD} {
		_, err := a.ctx.RegMR(pd, a.attrOf(10))
		w.want("MR with a PD that is "+what, err, unix.EINVAL)
		_, err = a.ctx.CreateQP(pd, initAttr(cqA), &device{})
		w.want("QP with a PD that is "+what, err, unix.EINVAL)
		_, err = a.ctx.CreateSRQ(pd, poolAttr(), &pool{})
		w.want("SRQ with a PD that is "+what, err, unix.EINVAL)
	}
	init := initAttr(cqA)
	init.SRQ = b.newPool(b.pd, poolAttr()).srq
	_, err := a.ctx.CreateQP(a.pd, init, &device{})
	w.want("QP with an SRQ that is another guest's", err, unix.EINVAL)
	_, err = a.ctx.CreateSRQ(a.pd, poolAttr(), nil)
	w.want("SRQ without a device", err, unix.EINVAL)
	for what, cq := range map[string]hostverbs.CQ{"nil": nil, "another guest's": cqB, "gone": goneCQ} {
		init := initAttr(cqA)
		init.SendCQ = cq
		_, err := a.ctx.CreateQP(a.pd, init, &device{})
		w.want("QP with a send CQ that is "+what, err, unix.EINVAL)
		init = initAttr(cqA)
		init.RecvCQ = cq
		_, err = a.ctx.CreateQP(a.pd, init, &device{})
		w.want("QP with a receive CQ that is "+what, err, unix.EINVAL)
	}
	_, err = a.ctx.CreateQP(a.pd, initAttr(cqA), nil)
	w.want("QP without a device", err, unix.EINVAL)
	w.want("the CQ after all that", cqA.Destroy(), nil)
	w.want("the PD after all that", a.pd.Dealloc(), nil)
}

func badCreates(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	att := env.Provider.QueryDevice()
	for _, cqe := range []int{-1, 0, int(att.MaxCQE) + 1} {
		_, err := g.ctx.CreateCQ(cqe)
		w.want("CQ of a wrong size", err, unix.EINVAL)
	}
	cq, err := g.ctx.CreateCQ(int(att.MaxCQE))
	w.want("CQ of the largest size", err, nil)
	for _, attr := range []hostverbs.SRQAttr{
		{MaxSGE: 1}, {MaxWR: att.MaxSRQWR + 1, MaxSGE: 1}, {MaxWR: 1, MaxSGE: att.MaxSRQSGE + 1}, {MaxWR: 1<<32 - 1, MaxSGE: 1},
	} {
		_, err := g.ctx.CreateSRQ(g.pd, attr, &pool{})
		w.want("SRQ of a wrong size", err, unix.EINVAL)
	}
	g.newPool(g.pd, hostverbs.SRQAttr{MaxWR: att.MaxSRQWR, MaxSGE: att.MaxSRQSGE})
	for what, spoil := range map[string]func(c *hostverbs.QPCap){
		"max_send_wr":     func(c *hostverbs.QPCap) { c.MaxSendWR = att.MaxQPWR + 1 },
		"max_recv_wr":     func(c *hostverbs.QPCap) { c.MaxRecvWR = 1<<32 - 1 },
		"max_send_sge":    func(c *hostverbs.QPCap) { c.MaxSendSGE = att.MaxSGE + 1 },
		"max_recv_sge":    func(c *hostverbs.QPCap) { c.MaxRecvSGE = 1<<32 - 1 },
		"max_inline_data": func(c *hostverbs.QPCap) { c.MaxInlineData = 1 << 20 },
	} {
		init := initAttr(cq)
		spoil(&init.Cap)
		_, err := g.ctx.CreateQP(g.pd, init, &device{})
		w.want("QP with too much "+what, err, unix.EINVAL)
	}
	init := initAttr(cq)
	init.Cap = hostverbs.QPCap{MaxSendWR: att.MaxQPWR, MaxRecvWR: att.MaxQPWR, MaxSendSGE: att.MaxSGE, MaxRecvSGE: att.MaxSGE}
	_, err = g.ctx.CreateQP(g.pd, init, &device{})
	w.want("QP of the largest size", err, nil)
	for _, typ := range []hostverbs.QPType{hostverbs.QPTypeSMI, 5, 6, 7, 9, 10, 255} {
		init := initAttr(cq)
		init.Type = typ
		_, err := g.ctx.CreateQP(g.pd, init, &device{})
		w.want("QP of the type "+typ.String(), err, unix.EOPNOTSUPP)
	}
}

func badRegistrations(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	good := g.attrOf(2 * page)
	for what, spoil := range map[string]func(a *hostverbs.MRAttr){
		"no memory":                    func(a *hostverbs.MRAttr) { a.Memory = nil },
		"no length":                    func(a *hostverbs.MRAttr) { a.Length = 0 },
		"longer than its memory":       func(a *hostverbs.MRAttr) { a.Length++ },
		"offset behind its memory":     func(a *hostverbs.MRAttr) { a.Offset = 1 << 40 },
		"end behind its memory":        func(a *hostverbs.MRAttr) { a.Offset = 1 },
		"offset that wraps":            func(a *hostverbs.MRAttr) { a.Offset = ^uint64(0) - 10 },
		"address that wraps":           func(a *hostverbs.MRAttr) { a.Start = ^uint64(0) - 10 },
		"longer than any region":       func(a *hostverbs.MRAttr) { a.Length = env.Provider.QueryDevice().MaxMRSize + 1 },
		"remote write without local":   func(a *hostverbs.MRAttr) { a.Access = hostverbs.AccessRemoteWrite },
		"remote atomic without local":  func(a *hostverbs.MRAttr) { a.Access = hostverbs.AccessRemoteAtomic },
		"DMA that does not start at 0": func(a *hostverbs.MRAttr) { a.DMA = true },
	} {
		attr := good
		spoil(&attr)
		_, err := g.ctx.RegMR(g.pd, attr)
		w.want(what, err, unix.EINVAL)
	}
	good.Access |= 1<<20 | 1<<6 // optional and unknown bits are ignored
	m, err := g.ctx.RegMR(g.pd, good)
	w.want("optional access bits", err, nil)
	w.want("deregister", m.Dereg(), nil)
	w.want("the PD after all that", g.pd.Dealloc(), nil)
}

func keysAreNew(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	attr := g.attrOf(page)
	seen := map[uint32]bool{}
	for range 1000 {
		m, err := g.ctx.RegMR(g.pd, attr)
		w.want("register", err, nil)
		if k := m.LKey(); k == 0 || seen[k] {
			t.Fatalf("key %#x: 0, or was there before", k)
		}
		seen[m.LKey()] = true
		w.want("deregister", m.Dereg(), nil)
	}
}

func closedContext(t testing.TB, env Env) {
	w := newWorld(t, env)
	g, other := w.guest(), w.guest()
	attr := g.attrOf(page)
	cq := g.mustCQ()
	srq := g.newPool(g.pd, poolAttr()).srq
	ctx := g.ctx
	g.leave()
	_, err := ctx.AllocPD()
	w.want("AllocPD", err, unix.ENODEV)
	_, err = ctx.CreateCQ(1)
	w.want("CreateCQ", err, unix.ENODEV)
	_, err = ctx.RegMR(g.pd, attr)
	w.want("RegMR", err, unix.ENODEV)
	_, err = ctx.CreateQP(g.pd, initAttr(cq), &device{})
	w.want("CreateQP", err, unix.ENODEV)
	_, err = ctx.CreateSRQ(g.pd, poolAttr(), &pool{})
	w.want("CreateSRQ", err, unix.ENODEV)
	_, err = srq.Query()
	w.want("query of an SRQ", err, unix.EINVAL)
	w.want("BindGID", ctx.BindGID(1, hostverbs.GID{15: 9}, hostverbs.GIDTypeRoCEv2), unix.ENODEV)
	w.want("Close", ctx.Close(), unix.EINVAL)
	w.want("another guest takes the address", other.ctx.BindGID(1, g.gid, hostverbs.GIDTypeRoCEv2), nil)
}

// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// versionCase is a device with a driver, and what they have in common.
type versionCase struct {
	device, driver, both uint32
	typ                  hostverbs.GIDType
}

func (c versionCase) String() string { return fmt.Sprintf("device %d, driver %d", c.device, c.driver) }

func versionCases() []versionCase {
	const v1, v2 = hostverbs.GIDTypeRoCEv1, hostverbs.GIDTypeRoCEv2
	return []versionCase{
		{17, 20, 17, v1},
		{18, 20, 18, v1},
		{18, 20, 18, v2},
		{19, 20, 19, v2},
		{20, 20, 20, v2},
		{20, 20, 20, v1},
		{20, 17, 17, v1},
		{20, 18, 18, v2},
		{20, 19, 19, v2},
		{17, 17, 17, v1},
		{20, 21, 20, v2}, // one that nobody has written yet
		{19, 21, 19, v2},
	}
}

// guestOf returns a guest of a case, switched on by its driver.
func (r *rig) guestOf(c versionCase, bend ...func(*Config)) *guest {
	r.t.Helper()
	cfg := defaultConfig()
	cfg.Version, cfg.GIDType = c.device, c.typ
	for _, f := range bend {
		f(&cfg)
	}
	g := r.idleGuest(cfg, true)
	g.activateFor(c.driver)
	return g
}

func TestADriverBelowVersion20FindsTheNumberToBeTheHandle(t *testing.T) {
	for _, c := range versionCases() {
		t.Run(c.String(), func(t *testing.T) {
			g := newRig(t).guestOf(c)
			pd, cq := g.createPD(0), g.createCQ(0, 8)

			b, err := g.exec(g.qpReq(pd, cq, cq))
			if err != nil {
				t.Fatal(err)
			}
			num := g.eng.qps()[0].num
			if c.both < 20 {
				var got abi.CmdCreateQPResp
				if err := got.Decode(b[:]); err != nil {
					t.Fatal(err)
				}
				want := abi.CmdCreateQPResp{
					Hdr: abi.RespHeader{Ack: 0x80000009}, QPN: 2, MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2,
				}
				if got != want || num != 2 || g.dev.qps.get(2) == nil {
					t.Errorf("response %+v for engine number %d, want %+v", got, num, want)
				}
				return
			}
			var got abi.CmdCreateQPRespV2
			if err := got.Decode(b[:]); err != nil {
				t.Fatal(err)
			}
			if got.QPN != num || num < 0x100 || got.QPHandle != 1 || got.MaxRecvSGE != 2 {
				t.Errorf("response %+v for engine number %d", got, num)
			}
		})
	}
}

// TestAProgramMayNotHaveQueuePair1WhetherOrNotTheKernelHasIt: it is told so, and not that there is one already.
func TestAProgramMayNotHaveQueuePair1WhetherOrNotTheKernelHasIt(t *testing.T) {
	for _, c := range versionCases() {
		t.Run(c.String(), func(t *testing.T) {
			g := newRig(t).guestOf(c)
			ctx, pd := g.user(userPage)
			cq, kcq, kpd := g.createCQ(ctx, 8), g.createCQ(0, 8), g.createPD(0)
			gsi := func(q *abi.CmdCreateQPReq) { q.QPType = abi.QPTypeGSI }
			req := g.qpReq(pd, cq, cq)
			gsi(req)
			g.refused(req, unix.EOPNOTSUPP)
			g.createQP(kpd, kcq, kcq, gsi)
			g.refused(req, unix.EOPNOTSUPP)
		})
	}
}

func TestNoNumberBelowVersion20IsOutsideOfTheDriversTable(t *testing.T) {
	const maxQP = 6
	g := newRig(t).guestOf(versionCase{17, 20, 17, hostverbs.GIDTypeRoCEv1}, func(c *Config) { c.Limits.MaxQP = maxQP })
	pd, cq := g.createPD(0), g.createCQ(0, 8)
	gsi := func(q *abi.CmdCreateQPReq) { q.QPType = abi.QPTypeGSI }

	// The GSI comes first in life, but nothing says that it must.
	var got []uint32
	var qps []*guestQP
	for range maxQP - 2 {
		q := g.createQP(pd, cq, cq)
		qps, got = append(qps, q), append(got, q.handle)
	}
	g.refused(g.qpReq(pd, cq, cq), unix.ENOMEM)
	first := g.createQP(pd, cq, cq, gsi)
	second := g.qpReq(pd, cq, cq)
	gsi(second)
	g.refused(second, unix.EBUSY)

	if fmt.Sprint(got) != "[2 3 4 5]" || first.handle != gsiQPN {
		t.Errorf("handles %v, the GSI's %d, want 2 to %d and %d", got, first.handle, maxQP-1, gsiQPN)
	}
	// A number comes back as late as possible, and the GSI's to the GSI alone.
	g.must(first.destroyReq(), nil)
	for _, i := range []int{1, 0} {
		g.must(qps[i].destroyReq(), nil)
	}
	for _, want := range []uint32{3, 2} {
		if q := g.createQP(pd, cq, cq); q.handle != want || q.engine.num != want {
			t.Errorf("handle %d of number %d, want %d, which is free for longest", q.handle, q.engine.num, want)
		}
	}
	g.refused(g.qpReq(pd, cq, cq), unix.ENOMEM)
	if q := g.createQP(pd, cq, cq, gsi); q.handle != gsiQPN {
		t.Errorf("the new GSI has handle %d", q.handle)
	}
}

func TestAQueuePairThatTheEngineRefusesKeepsNoHandle(t *testing.T) {
	for _, version := range []uint32{19, 20} {
		r := newRig(t)
		g := r.guestOf(versionCase{version, 20, version, hostverbs.GIDTypeRoCEv2})
		pd, cq := g.createPD(0), g.createCQ(0, 8)
		want := g.dev.qps.next()
		r.engine.refuseWith("CreateQP", unix.ENOMEM)
		g.refused(g.qpReq(pd, cq, cq), unix.ENOMEM)
		r.engine.refuseWith("CreateQP", nil)
		if q := g.createQP(pd, cq, cq); q.handle != want {
			t.Errorf("version %d: handle %d, want %d", version, q.handle, want)
		}
	}
}

func TestBelowVersion19HalfOfAFrameNumberIsDefined(t *testing.T) {
	for _, c := range versionCases() {
		g := newRig(t).guestOf(c)
		const garbage = 0xdead << 32
		req := &abi.CmdCreateUCReq{Hdr: hdr(abi.CmdCreateUC), PFN64: garbage | uarPFN + 1}
		if c.both >= 19 {
			g.refused(req, unix.EINVAL)
			continue
		}
		var r abi.CmdCreateUCResp
		g.must(req, &r)
		if got := g.dev.contexts.get(r.CtxHandle); got == nil || got.page != 1 {
			t.Errorf("%v: context %+v, want one of page 1", c, got)
		}
	}
}

func TestAVersionThatIsNoneIsRefused(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		version uint32
		typ     hostverbs.GIDType
	}{
		{1, hostverbs.GIDTypeRoCEv1},
		{16, hostverbs.GIDTypeRoCEv1},
		{21, hostverbs.GIDTypeRoCEv2},
		{^uint32(0), hostverbs.GIDTypeRoCEv2},
		{17, hostverbs.GIDTypeRoCEv2},
	} {
		cfg := defaultConfig()
		cfg.Version, cfg.GIDType = c.version, c.typ
		space := r.domain.NewSpace(cfg.Name)
		if _, err := r.worker.NewDevice(cfg, space, nil, &fakeNotifier{}, nil); err == nil {
			t.Errorf("version %d with %v: a device", c.version, c.typ)
		} else {
			wantErrno(t, err, unix.EINVAL)
		}
		_ = space.Close()
	}
}

func TestADriverThatTheDeviceCannotServeIsToldApart(t *testing.T) {
	for _, c := range []struct {
		driver uint32
		typ    hostverbs.GIDType
		ok     bool
	}{
		{0, hostverbs.GIDTypeRoCEv1, false},
		{16, hostverbs.GIDTypeRoCEv1, false},
		{17, hostverbs.GIDTypeRoCEv1, true},
		{17, hostverbs.GIDTypeRoCEv2, false},
		{18, hostverbs.GIDTypeRoCEv2, true},
		{20, hostverbs.GIDTypeRoCEv2, true},
		{^uint32(0), hostverbs.GIDTypeRoCEv2, true},
	} {
		cfg := defaultConfig()
		cfg.GIDType = c.typ
		g := newRig(t).idleGuest(cfg, false)
		err := g.dev.Activate(c.driver, uarPFN)
		if c.ok != (err == nil) || g.dev.Active() != c.ok {
			t.Errorf("driver %d with %v: %v", c.driver, c.typ, err)
		}
		if !c.ok {
			wantErrno(t, err, unix.EOPNOTSUPP)
		}
	}
}

func TestAResetDeviceServesADriverOfAnotherVersion(t *testing.T) {
	g := newRig(t).guestOf(versionCase{20, 18, 18, hostverbs.GIDTypeRoCEv2})
	for _, c := range []struct{ driver, handle uint32 }{{18, 2}, {20, 1}, {19, 2}} {
		if err := g.dev.Reset(); err != nil {
			t.Fatal(err)
		}
		g.activateFor(c.driver)
		cq := g.createCQ(0, 8)
		q := g.createQP(g.createPD(0), cq, cq)
		if q.handle != c.handle || (q.engine.init.QPN != 0) != (c.driver < 20) {
			t.Errorf("driver %d: handle %d, number %d asked for", c.driver, q.handle, q.engine.init.QPN)
		}
	}
}

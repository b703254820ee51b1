// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// gidCases are about addresses.
func gidCases() []Case {
	return []Case{
		{"an address belongs to the guest that bound it first", firstComeFirstServed},
		{"an address can be replaced, moved and given back", rebind},
		{"addresses that are none are refused", badAddresses},
		{"a connection lives only as long as both addresses", addressesCarryConnections},
		{"what is sent by one version of RoCE does not arrive at an address of the other", versionsDoNotMeet},
	}
}

const v2 = hostverbs.GIDTypeRoCEv2

func firstComeFirstServed(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	err := b.ctx.BindGID(1, a.gid, v2)
	w.want("second guest", err, unix.EADDRINUSE)
	for _, name := range []string{a.name, b.name} {
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
	w.want("it is still the first's", a.ctx.BindGID(1, a.gid, v2), nil)
	w.want("the second got nothing", b.ctx.UnbindGID(1, a.gid), unix.ENOENT)
	a.leave()
	w.want("after the first has left", b.ctx.BindGID(1, a.gid, v2), nil)
}

func rebind(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	x, y := hostverbs.GID{15: 100}, hostverbs.GID{15: 101}
	w.want("bind", a.ctx.BindGID(2, x, v2), nil)
	w.want("bind again", a.ctx.BindGID(2, x, v2), nil)
	w.want("replace", a.ctx.BindGID(2, y, v2), nil)
	w.want("the replaced one is free", b.ctx.BindGID(2, x, v2), nil)
	w.want("a second number for the same", a.ctx.BindGID(3, y, v2), nil)
	w.want("give one number back", a.ctx.UnbindGID(2, y), nil)
	w.want("the other still holds it", b.ctx.BindGID(3, y, v2), unix.EADDRINUSE)
	w.want("give the other number back", a.ctx.UnbindGID(3, y), nil)
	w.want("now it is free", b.ctx.BindGID(3, y, v2), nil)
	w.want("unbind what is not there", a.ctx.UnbindGID(3, y), unix.ENOENT)
	w.want("unbind with another address", b.ctx.UnbindGID(3, x), unix.ENOENT)
	w.want("unbind beyond the table", b.ctx.UnbindGID(4, x), unix.EINVAL)
	w.want("a refused replacement", a.ctx.BindGID(0, y, v2), unix.EADDRINUSE)
	w.want("leaves what was there", a.ctx.UnbindGID(0, a.gid), nil)
}

func badAddresses(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	x := hostverbs.GID{15: 1}
	w.want("number -1", g.ctx.BindGID(-1, x, v2), unix.EINVAL)
	w.want("number beyond the table", g.ctx.BindGID(4, x, v2), unix.EINVAL)
	w.want("all zero", g.ctx.BindGID(1, hostverbs.GID{}, v2), unix.EINVAL)
	w.want("multicast", g.ctx.BindGID(1, hostverbs.GID{0: 0xff, 15: 1}, v2), unix.EINVAL)
	w.want("multicast of IPv4", g.ctx.BindGID(1, hostverbs.GID{10: 0xff, 11: 0xff, 12: 239, 15: 1}, v2), unix.EINVAL)
	w.want("type 0", g.ctx.BindGID(1, x, 0), unix.EINVAL)
	w.want("both types", g.ctx.BindGID(1, x, 3), unix.EINVAL)
	w.want("nothing was bound", g.ctx.UnbindGID(1, x), unix.ENOENT)
	for _, n := range []int{-1, 0, 257} {
		_, err := w.sites[0].poller.OpenContext(hostverbs.ContextConfig{Guest: "x", GIDTableLen: n})
		w.want("a table of a wrong size", err, unix.EINVAL)
	}
}

func addressesCarryConnections(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	for i, which := range []*guest{a, b} {
		ea, eb := w.pair(a, b, func(la, lb *link) { la.retry, lb.retry = 0, 0 })
		ea.send(wr(1, hostverbs.OpRDMAWrite))
		w.settle()
		ea.sends("both bound", done(1, hostverbs.WCOpRDMAWrite))
		which.unbind()
		ea.send(wr(2, hostverbs.OpRDMAWrite))
		w.settle()
		ea.sends(which.name+" gave its address back", failed(2, hostverbs.WCRetryExcErr))
		w.want("bind again", which.ctx.BindGID(0, which.gid, v2), nil)
		if i == 0 {
			eb.send(wr(3, hostverbs.OpRDMAWrite))
			w.settle()
			eb.sends("to a queue pair in ERR", failed(3, hostverbs.WCRetryExcErr))
		}
	}
}

func versionsDoNotMeet(t testing.TB, env Env) {
	w := newWorld(t, env)
	for _, c := range []struct {
		mine, theirs hostverbs.GIDType
		meet         bool
	}{
		{v2, v2, true},
		{hostverbs.GIDTypeRoCEv1, hostverbs.GIDTypeRoCEv1, true},
		{hostverbs.GIDTypeRoCEv1, v2, false},
		{v2, hostverbs.GIDTypeRoCEv1, false},
	} {
		a, b := w.guest(), w.guest()
		w.want("bind", a.ctx.BindGID(0, a.gid, c.mine), nil)
		w.want("bind", b.ctx.BindGID(0, b.gid, c.theirs), nil)
		ea, eb := w.pair(a, b, nil)
		eb.recv(rwr(1))
		ea.send(wr(2, hostverbs.OpSend))
		w.settle()
		what := c.mine.String() + " to " + c.theirs.String()
		if c.meet {
			ea.sends(what, done(2, hostverbs.WCOpSend))
			eb.recvs(what, hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
			continue
		}
		ea.sends(what, failed(2, hostverbs.WCRetryExcErr))
		eb.recvs(what)
	}
}

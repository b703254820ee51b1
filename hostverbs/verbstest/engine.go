// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// engineCases are about the engine as a whole.
func engineCases() []Case {
	return []Case{
		{"an engine says who it is and what it can do", introduction},
		{"what an engine says it can do is what it does", asAdvertised},
		{"a poller that is closed opens nothing, nor does an engine", closedEngine},
	}
}

func introduction(t testing.TB, env Env) {
	p := env.Provider
	if p.Name() == "" {
		t.Error("the engine has no name")
	}
	a, port := p.QueryDevice(), p.QueryPort()
	for what, limit := range map[string]uint64{
		"max_mr_size": a.MaxMRSize, "max_qp": uint64(a.MaxQP), "max_qp_wr": uint64(a.MaxQPWR), "max_sge": uint64(a.MaxSGE),
		"max_cq": uint64(a.MaxCQ), "max_cqe": uint64(a.MaxCQE), "max_mr": uint64(a.MaxMR), "max_pd": uint64(a.MaxPD),
		"max_ah": uint64(a.MaxAH), "max_pkeys": uint64(a.MaxPKeys), "max_qp_rd_atom": uint64(a.MaxQPRdAtom),
		"max_qp_init_rd_atom": uint64(a.MaxQPInitRdAtom), "max_msg_sz": uint64(port.MaxMsgSize),
	} {
		if limit == 0 {
			t.Errorf("%s is 0", what)
		}
	}
	if a.MaxSGE > hostverbs.MaxSGE || a.MaxSGERd > hostverbs.MaxSGE || port.MaxMsgSize > hostverbs.MaxMsgSize {
		t.Errorf("max_sge %d, max_sge_rd %d or max_msg_sz %d is more than verbs have", a.MaxSGE, a.MaxSGERd, port.MaxMsgSize)
	}
	if port.ActiveMTU.Bytes() == 0 || port.MaxMTU.Bytes() < port.ActiveMTU.Bytes() {
		t.Errorf("active MTU %s of at most %s", port.ActiveMTU, port.MaxMTU)
	}
	if p.QueryDevice() != a || p.QueryPort() != port {
		t.Error("asked a second time, the engine says something else")
	}
}

// asAdvertised goes to the limits of what a queue pair can be told, and one step beyond.
func asAdvertised(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, port := env.Provider.QueryDevice(), env.Provider.QueryPort()
	e := w.guest().newEnd(hostverbs.QPTypeRC, false)
	l := e.linkTo(e)
	e.up(l, hostverbs.StateInit)
	refused := func(what string, l link, next hostverbs.QPState, mask hostverbs.AttrMask) {
		t.Helper()
		if err := e.qp.Modify(l.attr(next), mask); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: got %v, want EINVAL", what, err)
		}
	}
	most, beyond := l, l
	most.mtu, beyond.mtu = port.ActiveMTU, port.ActiveMTU+1
	refused("a path MTU above the active one", beyond, hostverbs.StateRTR, maskRTR)
	beyond = most
	if n := a.MaxQPRdAtom; n < 255 {
		most.destRdAtomic, beyond.destRdAtomic = uint8(n), uint8(n+1)
		refused("max_dest_rd_atomic above max_qp_rd_atom", beyond, hostverbs.StateRTR, maskRTR)
	}
	e.modify(most.attr(hostverbs.StateRTR), maskRTR)
	beyond = most
	if n := a.MaxQPInitRdAtom; n < 255 {
		most.rdAtomic, beyond.rdAtomic = uint8(n), uint8(n+1)
		refused("max_rd_atomic above max_qp_init_rd_atom", beyond, hostverbs.StateRTS, maskRTS)
	}
	e.modify(most.attr(hostverbs.StateRTS), maskRTS)
}

func closedEngine(t testing.TB, env Env) {
	owner := newThread(nil)
	defer owner.end()
	p, err := env.Provider.NewPoller(owner)
	if err != nil {
		t.Fatalf("new poller: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("close the poller: %v", err)
	}
	if _, err := p.OpenContext(hostverbs.ContextConfig{Guest: "late", GIDTableLen: 1}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a context of a closed poller: got %v, want ENODEV", err)
	}
	if err := env.Provider.Close(); err != nil {
		t.Errorf("close the engine: %v", err)
	}
	if _, err := env.Provider.NewPoller(owner); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a poller of a closed engine: got %v, want ENODEV", err)
	}
}

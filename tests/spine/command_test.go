// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"golang.org/x/sys/unix"
)

// refused fails the test unless a command failed with the device's errno, and the guest saw what the driver makes of it.
func refused(t *testing.T, what string, err error, device, guest unix.Errno) {
	t.Helper()
	var e *driver.CommandError
	if !errors.As(err, &e) {
		t.Errorf("%s: %v, want the device to refuse it with %v", what, err, device)
		return
	}
	if e.Errno() != device || e.Guest != guest {
		t.Errorf("%s: %v; want %v, and %v in the guest", what, err, device, guest)
	}
}

func TestACommandThatDoesNotExistIsRefused(t *testing.T) {
	d := startDaemon(t, "poll")
	g := d.guest("a")
	for _, code := range []uint32{g.Const("PVRDMA_CMD_MAX"), 1 << 16, 1 << 31, ^uint32(0)} {
		req := g.L.New("pvrdma_cmd_req")
		req.Set("hdr.cmd", uint64(code))
		_, err := g.Dev.Post(req.Bytes(), "unknown", 0)
		refused(t, "an unknown command", err, unix.EOPNOTSUPP, unix.EFAULT)
	}
	if _, err := g.Dev.QueryPort(1); err != nil {
		t.Errorf("the next command: %v", err)
	}
}

// The guest's CTL write on another CPU can hide a command's error, so the response slot must carry the verdict too.
func TestAFailedCommandsResponseSaysSoToo(t *testing.T) {
	d := startDaemon(t, "poll")
	g := d.guest("a")
	if _, err := g.Dev.QueryPort(1); err != nil { // leaves a right response behind
		t.Fatal(err)
	}
	_, err := g.Dev.QueryPKey(1, 200)
	refused(t, "partition key 200", err, unix.EINVAL, unix.EFAULT)
	h := g.L.View("pvrdma_cmd_resp_hdr", g.Dev.ResponseSlot())
	if h.Get32("ack") != 0 || h.Get32("err") != uint32(unix.EINVAL) {
		t.Errorf("the response has ack %#x and err %d, want 0 and EINVAL", h.Get32("ack"), h.Get32("err"))
	}
}

func TestAModifyThatFailsTellsTheGuestEINVALAndChangesNothing(t *testing.T) {
	d := startDaemon(t, "poll")
	g := d.guest("a")
	e := g.Open().Endpoint(testguest.Shape{})
	tune := g.DefaultTuning()

	err := e.QP.ToRTR(e.PathTo(e.Address()), tune)
	refused(t, "RESET to RTR", err, unix.EINVAL, unix.EINVAL)
	e.StateIs("RESET")

	if err := e.QP.ToInit(tune); err != nil {
		t.Fatal(err)
	}
	err = e.QP.Modify(e.QP.Attr().WithState("RTR").WithPath(e.PathTo(e.Address())))
	refused(t, "RTR without its attributes", err, unix.EINVAL, unix.EINVAL)
	e.StateIs("INIT")

	err = e.QP.Modify(e.QP.Attr().WithState("INIT").With("PKEY_INDEX", "pkey_index", 7))
	refused(t, "a partition that is not there", err, unix.EINVAL, unix.EINVAL)
	err = e.QP.Modify(e.QP.Attr().WithState("INIT").With("PORT", "port_num", 2))
	refused(t, "a port that is not there", err, unix.EINVAL, unix.EINVAL)
	e.StateIs("INIT")

	wide := e.QP.Attr().WithState("INIT")
	wide.Mask |= 1 << 25
	refused(t, "a mask bit of another device", e.QP.Modify(wide), unix.EOPNOTSUPP, unix.EINVAL)
	v, err := e.QP.Query()
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Get32("pkey_index"); got != 0 {
		t.Errorf("partition index %d after modifies that failed, want 0", got)
	}
}

func TestAQueryReturnsWhatTheModifiesSet(t *testing.T) {
	d := startDaemon(t, "poll")
	a, b := d.connected(testguest.Shape{})
	v, err := a.QP.Query()
	if err != nil {
		t.Fatal(err)
	}
	tune, peer := a.Shape.Tuning, b.Address()
	for field, want := range map[string]uint32{
		"qp_state": a.P.G.Const("PVRDMA_QPS_RTS"), "cur_qp_state": a.P.G.Const("PVRDMA_QPS_RTS"),
		"path_mtu": tune.MTU, "dest_qp_num": peer.QPN, "rq_psn": peer.PSN, "qp_access_flags": tune.Access,
		"timeout": uint32(tune.Timeout), "retry_cnt": uint32(tune.RetryCnt), "rnr_retry": uint32(tune.RNRRetry),
		"min_rnr_timer": uint32(tune.MinRNRTimer), "max_rd_atomic": uint32(tune.RDAtomic),
		"max_dest_rd_atomic": uint32(tune.DestRDAtomic), "port_num": 1, "ah_attr.port_num": 1,
		"ah_attr.grh.sgid_index": 0, "ah_attr.ah_flags": a.P.G.Const("PVRDMA_AH_GRH"),
		"cap.max_send_wr": a.QP.Init.MaxSendWR, "cap.max_recv_wr": a.QP.Init.MaxRecvWR,
		"cap.max_send_sge": a.QP.Init.MaxSendSGE, "cap.max_recv_sge": a.QP.Init.MaxRecvSGE, "cap.max_inline_data": 0,
	} {
		if got := v.Get32(field); got != want {
			t.Errorf("%s is %#x, want %#x", field, got, want)
		}
	}
	if got := [16]byte(v.Slice("ah_attr.grh.dgid")); got != peer.GID {
		t.Errorf("the path leads to % x, want % x", got, peer.GID)
	}
}

func TestEveryHandleFitsTheGuestsTablesAndTheTablesHaveAnEnd(t *testing.T) {
	const most = 16
	d := startDaemon(t, "poll", "max_qp = 16", "max_cq = 16", "max_pd = 16", "max_mr = 16", "max_uar = 16")
	g := d.guest("a")
	p := g.Open()
	base := p.Endpoint(testguest.Shape{Depth: 4})
	for name, create := range map[string]func() (handle uint32, free func() error, err error){
		"QP": func() (uint32, func() error, error) {
			q, err := base.PD.CreateQP(base.QP.Init)
			if err != nil {
				return 0, nil, err
			}
			return q.Handle, q.Destroy, nil
		},
		"CQ": func() (uint32, func() error, error) {
			q, err := p.CreateCQ(4)
			if err != nil {
				return 0, nil, err
			}
			return q.Handle, q.Destroy, nil
		},
		"PD": func() (uint32, func() error, error) {
			q, err := p.AllocPD()
			if err != nil {
				return 0, nil, err
			}
			return 1, q.Free, nil // a PD's handle may be anything below 2^24
		},
		"MR": func() (uint32, func() error, error) {
			q, err := base.PD.Register(100, 0, 1)
			if err != nil {
				return 0, nil, err
			}
			return 1, q.Deregister, nil
		},
		"UC": func() (uint32, func() error, error) {
			q, err := verbs.Open(g.Dev)
			if err != nil {
				return 0, nil, err
			}
			return 1, q.Close, nil
		},
	} {
		t.Run(name, func(t *testing.T) { fillTable(t, most, name == "UC", create) })
	}
}

// fillTable creates objects until there is no more room, twice, and checks the handles on the way.
func fillTable(t *testing.T, most int, byDriver bool, create func() (uint32, func() error, error)) {
	t.Helper()
	first := 0
	for round := range 2 {
		var frees []func() error
		seen := map[uint32]bool{}
		for {
			handle, free, err := create()
			if err != nil {
				if !byDriver { // the driver counts doorbell pages itself
					refused(t, "one more", err, unix.ENOMEM, unix.EFAULT)
				}
				break
			}
			if handle == 0 || handle >= uint32(most) || handle > 1 && seen[handle] {
				t.Fatalf("object %d has handle %d", len(frees), handle)
			}
			seen[handle] = true
			if frees = append(frees, free); len(frees) > most {
				t.Fatalf("more than %d objects", most)
			}
		}
		if round == 0 {
			first = len(frees)
		}
		if len(frees) == 0 || len(frees) != first {
			t.Errorf("round %d makes %d objects, the first made %d", round, len(frees), first)
		}
		for _, free := range frees {
			if err := free(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestWhatThisDeviceDoesNotHaveIsRefused(t *testing.T) {
	d := startDaemon(t, "poll")
	g := d.guest("a")
	p := g.Open()
	e := p.Endpoint(testguest.Shape{})
	for _, typ := range []string{"SMI", "UC", "RAW_PACKET", "XRC_INI", "XRC_TGT", "MAX"} {
		i := e.QP.Init
		i.Type = g.Const("PVRDMA_QPT_" + typ)
		if _, err := e.PD.CreateQP(i); err == nil {
			t.Errorf("a queue pair of type %s is made", typ)
		}
	}
	i := e.QP.Init
	i.Type = g.Const("PVRDMA_QPT_GSI")
	if _, err := e.PD.CreateQP(i); err == nil {
		t.Error("a program makes a QP 1")
	}
}

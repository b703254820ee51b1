// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
)

func TestTheEngineAdvertisesOnlyWhatItHas(t *testing.T) {
	d := soft.New(nil).QueryDevice()
	if d.MaxSGE > hostverbs.MaxSGE || d.MaxSGERd > hostverbs.MaxSGE {
		t.Errorf("max_sge %d and max_sge_rd %d are more than a request holds", d.MaxSGE, d.MaxSGERd)
	}
	for name, n := range map[string]uint32{"max_qp_wr": d.MaxQPWR, "max_cqe": d.MaxCQE, "max_sge": d.MaxSGE, "max_srq_wr": d.MaxSRQWR} {
		if n == 0 || n&(n-1) != 0 {
			t.Errorf("%s %d is no power of two, to which the guest's driver rounds after it has checked", name, n)
		}
	}
	if p := soft.New(nil).QueryPort(); !p.Active || p.ActiveMTU > p.MaxMTU || p.ActiveMTU.Bytes() == 0 || p.MaxMsgSize != 1<<31 {
		t.Errorf("the port is %+v", p)
	}
}

func TestAPollerIsClosedAfterItsGuestsAndAnEngineAfterItsPollers(t *testing.T) {
	e := soft.New(nil)
	if _, err := e.NewPoller(nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("without an owner: %v, want EINVAL", err)
	}
	p := must(e.NewPoller(inline{}))
	c := must(p.OpenContext(hostverbs.ContextConfig{Guest: "vm1", GIDTableLen: 1}))
	if err := p.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("close with a guest: %v, want EBUSY", err)
	}
	check(c.Close())
	if err := e.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("close with a poller: %v, want EBUSY", err)
	}
	check(p.Close())
	if err := p.Close(); !errors.Is(err, unix.EINVAL) {
		t.Errorf("close again: %v, want EINVAL", err)
	}
	if _, err := p.OpenContext(hostverbs.ContextConfig{GIDTableLen: 1}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a guest on a closed poller: %v, want ENODEV", err)
	}
	check(must(e.NewPoller(inline{})).Close())
	check(e.Close())
	if _, err := e.NewPoller(inline{}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a poller of a closed engine: %v, want ENODEV", err)
	}
}

func TestAnEngineHasPollersUpToALimit(t *testing.T) {
	e := soft.New(nil)
	var all []hostverbs.Poller
	for range soft.MaxPollers {
		all = append(all, must(e.NewPoller(inline{})))
	}
	if _, err := e.NewPoller(inline{}); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("one more: %v, want ENOMEM", err)
	}
	check(all[0].Close())
	all[0] = must(e.NewPoller(inline{}))
	for _, p := range all {
		check(p.Close())
	}
	check(e.Close())
}

func TestAGuestWithManyBusyQueuePairsHasNoLargerShare(t *testing.T) {
	const size, crowd = 4 << 20, 100
	r := newRig(size)
	r.prepare(hostverbs.OpRDMAWrite, size, 1)
	// The third guest's queue pairs all have a long message under way, to themselves.
	dom := guestmem.NewDomain()
	c := join(r.p, dom, 3, size)
	w := r.wrs[0]
	w.SGE[0].LKey, w.RKey = c.mr.LKey(), c.mr.RKey()
	for range crowd {
		q := c.create(&sink{})
		connect(q, q, c)
		if q.PostSend([]hostverbs.SendWR{w}) != 1 {
			t.Fatal("a long message was not taken")
		}
	}
	r.qa.PostSend(r.wrs)
	rounds := 0
	const visits = size / soft.CrowdedBytes
	for ; r.da.sent == 0 && rounds < crowd*visits; rounds++ {
		r.now += 1000
		r.p.Progress(r.now)
	}
	// A round is one visit, every other one of which belongs to the lone message.
	if rounds > 2*visits {
		t.Errorf("the lone message took %d rounds among %d of one other guest, want two for each of its %d visits", rounds, crowd,
			visits)
	}
}

// faults is an observer that remembers whose memory failed.
type faults []string

func (f *faults) MemoryFault(err *guestmem.FaultError) { *f = append(*f, err.Owner) }

func TestCountersAndTheObserverTellWhatHappened(t *testing.T) {
	guestmem.PrepareGoroutine()
	var seen faults
	e := soft.New(&seen)
	r := &rig{p: must(e.NewPoller(inline{})), da: &sink{}, db: &sink{}, now: int64(time.Hour)}
	dom := guestmem.NewDomain()
	r.a, r.b = join(r.p, dom, 1, 8192), join(r.p, dom, 2, 8192)
	r.qa, r.qb = r.a.create(r.da), r.b.create(r.db)
	connect(r.qa, r.qb, r.b)
	connect(r.qb, r.qa, r.a)
	for _, op := range []hostverbs.WROpcode{hostverbs.OpSend, hostverbs.OpRDMAWriteWithImm, hostverbs.OpRDMARead, hostverbs.OpRDMARead} {
		r.prepare(op, 100, 1)
		r.run()
	}
	r.db.none = true
	r.prepare(hostverbs.OpSend, 8, 1)
	r.qa.PostSend(r.wrs)
	r.p.Progress(r.now)
	r.db.none = false
	r.later()
	lost := lostRegion(r.b, 4096)
	r.prepare(hostverbs.OpRDMAWrite, 8, 1)
	r.wrs[0].RKey = lost.RKey()
	r.run()
	r.later()

	got := e.Counters()
	var statuses [len(got.Completions)]uint64
	statuses[hostverbs.WCSuccess] = 4 + 2 + 1 + 1 // four requests, two receives, and the SEND that found none at first
	statuses[hostverbs.WCRemOpErr] = 1
	got.Completions[hostverbs.WCWRFlushErr] = 0 // the sink posts receives without end
	want := soft.Counters{
		Sends: 2, SendBytes: 108, Writes: 1, WriteBytes: 100, Reads: 2, ReadBytes: 200,
		Completions: statuses, RNRNAKs: 1, MemoryFaults: 1,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(seen) != 1 || seen[0] != "lost" {
		t.Errorf("the observer saw faults of %q, want one of the guest whose file was truncated", seen)
	}
}

// later lets 20 ms pass.
func (r *rig) later() {
	for range 20 {
		r.now += int64(time.Millisecond)
		r.p.Progress(r.now)
	}
}

// lostRegion registers n bytes of a file that is truncated afterwards.
func lostRegion(g *party, n int) hostverbs.MR {
	fd := must(unix.MemfdCreate("lost", unix.MFD_CLOEXEC))
	defer func() { check(unix.Close(fd)) }()
	check(unix.Ftruncate(fd, int64(n)))
	space := guestmem.NewDomain().NewSpace("lost")
	prot := guestmem.ProtRead | guestmem.ProtWrite
	check(space.Map(0, uint64(n), fd, 0, prot))
	mem := must(space.Pin([]uint64{0}, prot))
	check(unix.Ftruncate(fd, 0))
	return must(g.ctx.RegMR(g.pd, hostverbs.MRAttr{
		Memory: mem, Length: uint64(n), Access: hostverbs.AccessLocalWrite | hostverbs.AccessRemoteWrite,
	}))
}

func TestAnIdleEngineAsksForNothing(t *testing.T) {
	r := newRig(4096)
	r.prepare(hostverbs.OpRDMAWrite, 8, 1)
	r.run()
	r.later()
	if worked, next := r.p.Progress(r.now + int64(time.Second)); worked || next != 0 {
		t.Errorf("worked %t, next %d; want false, 0", worked, next)
	}
}

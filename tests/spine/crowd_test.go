// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

const (
	crowdGuests = 64
	// crowdQPs is how many queue pairs each of them has: half of them lead to the guests after it, half to those before it.
	crowdQPs = 64
	half     = crowdQPs / 2
	// idleRSS is how much of the host's memory a guest may take that does nothing, in bytes.
	idleRSS = 20 << 20
	// word is what each queue pair writes into its peer's memory, in bytes.
	word = 8
)

// member is a guest of the crowd: one program with a queue pair to each of many others.
type member struct {
	g   *testguest.Guest
	ctx *testguest.Program
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR // what this guest sends, then what it receives
	qps []*verbs.QP
}

func (d *daemon) member(n int) *member {
	d.t.Helper()
	return &member{g: testguest.Start(d.t, d.socket(d.names[n]), testguest.Options{
		Memory: ram.Options{Size: 8 << 20},
		MAC:    [6]byte{2, 0, 0, 0, 0, byte(n + 1)}, IP: [4]byte{10, 0, 0, byte(n + 1)}, MADReceives: 4,
	})}
}

// populate makes the member's objects.
func (m *member) populate(t *testing.T) {
	t.Helper()
	m.ctx = m.g.Open()
	var err error
	if m.pd, err = m.ctx.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if m.mr, err = m.pd.Register(2*crowdQPs*word, 0, m.g.RemoteAccess()); err != nil {
		t.Fatal(err)
	}
	if m.cq, err = m.ctx.CreateCQ(4 * crowdQPs); err != nil {
		t.Fatal(err)
	}
	m.qps = nil
	for range crowdQPs {
		q, err := m.pd.CreateQP(verbs.QPInit{
			SendCQ: m.cq, RecvCQ: m.cq, Type: m.g.Const("PVRDMA_QPT_RC"), MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1,
			MaxRecvSGE: 1, SignalAll: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		m.qps = append(m.qps, q)
	}
}

// crowd is all members, connected.
type crowd []*member

// peer returns where queue pair j of guest i leads to.
func (c crowd) peer(i, j int) (guest, qp int) {
	if j < half {
		return (i + j + 1) % len(c), half + j
	}
	return (i - (j - half) - 1 + len(c)) % len(c), j - half
}

// connect takes queue pair j of guest i to RTS.
func (c crowd) connect(i, j int) error {
	m, tune := c[i], c[i].g.DefaultTuning()
	to, qp := c.peer(i, j)
	path := verbs.Path{DGID: c[to].g.GIDs[0], DMAC: c[to].g.MAC(), QPN: c[to].qps[qp].QPN}
	return errors.Join(m.qps[j].ToInit(tune), m.qps[j].ToRTR(path, tune), m.qps[j].ToRTS(path, tune))
}

// message is what queue pair j of guest i sends in a round.
func message(round, i, j int) uint64 { return uint64(round)<<32 | uint64(i)<<16 | uint64(j) | 1<<63 }

// post has queue pair j of guest i write its message of a round into its peer's memory.
func (c crowd) post(round, i, j int) error {
	m := c[i]
	to, qp := c.peer(i, j)
	binary.LittleEndian.PutUint64(m.mr.Mem[j*word:], message(round, i, j))
	return m.qps[j].PostSend(verbs.SendWR{
		WRID: uint64(j), Opcode: m.g.Const("PVRDMA_WR_RDMA_WRITE"), SGE: []verbs.SGE{m.mr.SGE(j*word, word)},
		RemoteAddr: c[to].mr.Addr + uint64((crowdQPs+qp)*word), RKey: c[to].mr.RKey,
	})
}

// statuses posts a message on every queue pair of some members and returns how each ended.
func (c crowd) statuses(t *testing.T, round int, who func(i int) bool) map[[2]int]uint32 {
	t.Helper()
	all := map[[2]int]uint32{}
	for i := range c {
		for j := 0; who(i) && j < crowdQPs; j++ {
			if err := c.post(round, i, j); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, m := range c {
		for n := 0; who(i) && n < crowdQPs; n++ {
			wc, err := m.cq.Wait(verbs.Polled, testguest.Patience)
			if err != nil {
				t.Fatalf("guest %d: completion %d: %v", i, n, err)
			}
			all[[2]int{i, int(wc.WRID)}] = wc.Status
		}
	}
	return all
}

// arrived says whether the message of queue pair j of guest i lies where it belongs.
func (c crowd) arrived(round, i, j int) bool {
	to, qp := c.peer(i, j)
	return binary.LittleEndian.Uint64(c[to].mr.Mem[(crowdQPs+qp)*word:]) == message(round, i, j)
}

// rss is the daemon's resident memory in bytes.
func (d *daemon) rss() uint64 {
	d.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "VmRSS:")
	var kib uint64
	if n, _ := fmt.Sscan(rest, &kib); !ok || n != 1 {
		d.t.Fatalf("no VmRSS in:\n%s", b)
	}
	return kib << 10
}

// TestManyGuestsWithManyQueuePairs boots 64 guests, connects each with all others by 64 queue pairs, sends on all of them,
// and then has every fourth guest crash and come back while the others send.
func TestManyGuestsWithManyQueuePairs(t *testing.T) {
	var names []string
	for i := range crowdGuests {
		names = append(names, fmt.Sprintf("g%02d", i))
	}
	d := launchFor(t, names, "poll", "", func(string) string { return "" })
	before := d.rss()
	c := make(crowd, crowdGuests)
	for i := range c {
		c[i] = d.member(i)
	}
	idle := (d.rss() - before) / crowdGuests
	for _, m := range c {
		m.populate(t)
	}
	for i := range c {
		for j := range crowdQPs {
			if err := c.connect(i, j); err != nil {
				t.Fatalf("guest %d, queue pair %d: %v", i, j, err)
			}
		}
	}
	t.Logf("%d bytes of the host's memory for an idle guest, %d with %d queue pairs", idle, (d.rss()-before)/crowdGuests, crowdQPs)
	if idle > idleRSS {
		t.Errorf("an idle guest takes %d bytes, want %d at most", idle, idleRSS)
	}
	everybody := func(int) bool { return true }
	c.check(t, 1, everybody, everybody)

	crashed := func(i int) bool { return i%4 == 0 }
	alive := func(i int) bool { return !crashed(i) }
	for i, m := range c {
		if crashed(i) {
			m.g.Reboot()
		}
	}
	c.check(t, 2, alive, alive)

	for i, m := range c {
		if crashed(i) {
			m.populate(t)
		}
	}
	c.reconnect(t, crashed)
	c.check(t, 3, everybody, everybody)
}

// check sends a message on each queue pair of some members: those to members that are there arrive, all others end without
// an answer.
func (c crowd) check(t *testing.T, round int, senders, there func(i int) bool) {
	t.Helper()
	for at, status := range c.statuses(t, round, senders) {
		i, j := at[0], at[1]
		to, _ := c.peer(i, j)
		want := "SUCCESS"
		if !there(to) {
			want = "RETRY_EXC_ERR"
		}
		if status != c[i].g.Const("PVRDMA_WC_"+want) || c.arrived(round, i, j) != there(to) {
			t.Errorf("round %d: queue pair %d of guest %d to guest %d: status %s, arrived %v; want %s", round, j, i, to,
				c[i].g.L.ConstName("PVRDMA_WC_", status), c.arrived(round, i, j), want)
		}
	}
}

// reconnect connects the queue pairs of which one end is new.
func (c crowd) reconnect(t *testing.T, isNew func(i int) bool) {
	t.Helper()
	for i, m := range c {
		for j := range crowdQPs {
			to, _ := c.peer(i, j)
			if !isNew(i) && !isNew(to) {
				continue
			}
			if !isNew(i) {
				if err := m.qps[j].Reset(); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.connect(i, j); err != nil {
				t.Fatalf("guest %d, queue pair %d: %v", i, j, err)
			}
		}
	}
}

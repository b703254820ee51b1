// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// qkey is the Q_Key of these tests' queue pairs.
const qkey = 0x11223344

// datagrams boots a guest with an endpoint for datagrams.
func (d *daemon) datagrams(name string, mode verbs.Mode) *testguest.Endpoint {
	d.t.Helper()
	e := d.guest(name).Open().Endpoint(testguest.Shape{Type: "UD", Mode: mode, SGE: 2})
	e.ReadyForDatagrams(qkey)
	return e
}

// pathTo leads to an endpoint by one of its guest's addresses, from the address of the same number.
func pathTo(e *testguest.Endpoint, gid int) verbs.Path {
	return verbs.Path{DGID: e.P.G.GIDs[gid], SGIDIndex: uint8(gid), DMAC: e.P.G.MAC(), QPN: e.QP.QPN}
}

func TestADatagramArrivesBehindTheHeaderOfItsWay(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		for _, mode := range []verbs.Mode{verbs.Polled, verbs.Events} {
			t.Run(mode.String(), func(t *testing.T) {
				a, b := d.datagrams("a", mode), d.datagrams("b", mode)
				defer a.P.G.Stop()
				defer b.P.G.Stop()
				for gid := range 2 {
					for i, n := range []int{0, 1, 255, 2048, 4096} {
						arrives(t, a, b, gid, byte(i+7*gid), n)
					}
				}
			})
		}
	})
}

// arrives sends a datagram of n bytes by one of the guests' addresses and looks at all that comes of it.
func arrives(t *testing.T, a, b *testguest.Endpoint, gid int, seed byte, n int) {
	t.Helper()
	from, to := a.MR.Mem, b.MR.Mem
	fill(from[:8192], seed)
	fill(to[:8192], seed+100)
	recv := b.Recv(13, n+testguest.GRHBytes)
	sent := a.Post(a.Datagram(pathTo(b, gid), qkey, 5, n))
	a.Sent(sent, "SUCCESS")
	wc := b.Received(recv, "SUCCESS")
	if want := b.P.G.Const("PVRDMA_WC_GRH"); wc.Flags != want || wc.SrcQP != a.QP.QPN || int(wc.ByteLen) != n+testguest.GRHBytes {
		t.Errorf("%d bytes: %d bytes of queue pair %d with flags %#x, want flags %#x", n, wc.ByteLen, wc.SrcQP, wc.Flags, want)
	}
	if got := to[13+testguest.GRHBytes:][:n]; !bytes.Equal(got, from[5:5+n]) {
		t.Errorf("%d bytes arrive as others", n)
	}
	version, _ := way(a.P.G, gid)
	header(t, to[13:][:testguest.GRHBytes], version, a.P.G.GIDs[gid], b.P.G.GIDs[gid])
	if end := 13 + testguest.GRHBytes + n; to[end] != pattern(seed+100, end) || to[12] != pattern(seed+100, 12) {
		t.Errorf("%d bytes: memory beside the receive has changed", n)
	}
}

// way is the IP version in the header of a datagram from one of a guest's addresses, and what the completion calls it: RoCE v1 has
// a header of InfiniBand's, which looks as that of IPv6 does, for all.
func way(g *testguest.Guest, gid int) (version byte, network uint8) {
	switch {
	case g.Dev.Caps().Get32("gid_types") == g.Const("PVRDMA_GID_TYPE_FLAG_ROCE_V1"):
		return 6, 0
	case gid == 1:
		return 4, 1
	}
	return 6, 2
}

// pattern is a byte at an offset, fill writes many.
func pattern(seed byte, off int) byte { return seed ^ byte(off*7+off>>8) }

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = pattern(seed, i)
	}
}

// header looks at the addresses in the header of a datagram: that of IPv4 is in the last 20 bytes.
func header(t *testing.T, b []byte, version byte, sgid, dgid [16]byte) {
	t.Helper()
	src, dst := b[8:24], b[24:40]
	if version == 4 {
		b = b[20:]
		src, dst = append(make([]byte, 10, 16), 0xff, 0xff), append(make([]byte, 10, 16), 0xff, 0xff)
		src, dst = append(src, b[12:16]...), append(dst, b[16:20]...)
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		if sum>>16+sum&0xffff != 0xffff {
			t.Errorf("the header's checksum is wrong: %x", b)
		}
	}
	if b[0]>>4 != version || !bytes.Equal(src, sgid[:]) || !bytes.Equal(dst, dgid[:]) {
		t.Errorf("a header of version %d from %x to %x, want version %d from %x to %x", b[0]>>4, src, dst, version, sgid, dgid)
	}
}

func TestADatagramThatNobodyTakesHarmsNobody(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.datagrams("a", verbs.Polled), d.datagrams("b", verbs.Polled)
		fill(b.MR.Mem, 9)
		before := bytes.Clone(b.MR.Mem)
		recv := b.Recv(0, 64)
		for name, change := range map[string]func(p *verbs.Path, key *uint32, n *int){
			"a GID that nobody has":       func(p *verbs.Path, _ *uint32, _ *int) { p.DGID[15] ^= 0x55 },
			"the sender's own GID":        func(p *verbs.Path, _ *uint32, _ *int) { p.DGID = a.P.G.GIDs[0] },
			"a queue pair nobody has":     func(p *verbs.Path, _ *uint32, _ *int) { p.QPN += 1000 },
			"the kernel's queue pair":     func(p *verbs.Path, _ *uint32, _ *int) { p.QPN = 1 },
			"another Q_Key":               func(_ *verbs.Path, key *uint32, _ *int) { *key++ },
			"the Q_Key of a queue pair 1": func(p *verbs.Path, key *uint32, n *int) { p.QPN, *key, *n = 1, 0x80010000, 256 },
			"one byte too many":           func(_ *verbs.Path, _ *uint32, n *int) { *n = 25 },
		} {
			path, key, n := pathTo(b, 0), uint32(qkey), 24
			change(&path, &key, &n)
			a.Sent(a.Post(a.Datagram(path, key, 0, n)), "SUCCESS")
			a.StateIs("RTS")
			if !bytes.Equal(b.MR.Mem, before) {
				t.Fatalf("%s: the other guest's memory has changed", name)
			}
			a.Quiet()
			b.Quiet()
		}
		if wc, ok, err := b.P.G.GSI.Poll(); ok || err != nil {
			t.Errorf("queue pair 1 has %+v, %v", wc, err)
		}
		b.StateIs("RTS")
		a.Sent(a.Post(a.Datagram(pathTo(b, 0), qkey, 0, 24)), "SUCCESS")
		b.Received(recv, "SUCCESS")
	})
}

func TestAFailedDatagramStopsTheSendQueueAlone(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.datagrams("a", verbs.Polled), d.datagrams("b", verbs.Polled)
		other, err := a.P.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			change func(wr *verbs.SendWR)
			status string
		}{
			"an address of another domain": {func(wr *verbs.SendWR) { wr.AV = other.AV(pathTo(b, 0)) }, "LOC_QP_OP_ERR"},
			"a number that is not bound":   {func(wr *verbs.SendWR) { wr.AV.Set("gid_index", 77) }, "LOC_QP_OP_ERR"},
			"a multicast group":            {func(wr *verbs.SendWR) { wr.AV.SetBytes("dgid", []byte{0xff, 0x0e}) }, "LOC_QP_OP_ERR"},
			"a WRITE":                      {func(wr *verbs.SendWR) { wr.Opcode = a.P.G.Const("PVRDMA_WR_RDMA_WRITE") }, "LOC_QP_OP_ERR"},
			"a key of nothing":             {func(wr *verbs.SendWR) { wr.SGE[0].LKey ^= 0x5000 }, "LOC_PROT_ERR"},
			"more than a packet":           {func(wr *verbs.SendWR) { wr.SGE[0].Length = 4097 }, "LOC_LEN_ERR"},
		} {
			wr := a.Datagram(pathTo(b, 0), qkey, 0, 64)
			c.change(&wr)
			next := a.Datagram(pathTo(b, 0), qkey, 0, 64)
			if err := a.QP.PostSend(wr, next); err != nil {
				t.Fatal(err)
			}
			a.Sent(wr.WRID, c.status)
			a.Sent(next.WRID, "WR_FLUSH_ERR")
			a.StateIs("SQE")
			// It still receives.
			recv := a.Recv(4096, 40)
			b.Sent(b.Post(b.Datagram(pathTo(a, 0), qkey, 0, 0)), "SUCCESS")
			a.Received(recv, "SUCCESS")
			// The guest's driver does not know what has happened: it sends what leads from RTS to RTS.
			if err := a.QP.Modify(a.QP.Attr().WithState("RTS")); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			recv = b.Recv(0, 104)
			a.Sent(a.Post(a.Datagram(pathTo(b, 0), qkey, 0, 64)), "SUCCESS")
			b.Received(recv, "SUCCESS")
		}
		if err := other.Free(); err != nil {
			t.Error(err)
		}
	})
}

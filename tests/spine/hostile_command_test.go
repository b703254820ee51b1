// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"golang.org/x/sys/unix"
)

// ground is a guest with one of everything, for commands that lie about one thing.
type ground struct {
	t   *testing.T
	d   *daemon
	g   *testguest.Guest
	p   *testguest.Program
	e   *testguest.Endpoint
	dir *driver.PageDir // of 32 pages
}

const groundPages = 32

func newGround(t *testing.T, d *daemon) *ground {
	t.Helper()
	g := d.guest("a")
	p := g.Open()
	pages, err := g.RAM.Pages(groundPages)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := driver.NewPageDir(g.L, g.RAM, pages)
	if err != nil {
		t.Fatal(err)
	}
	return &ground{t: t, d: d, g: g, p: p, e: p.Endpoint(testguest.Shape{}), dir: dir}
}

func (r *ground) cq() driver.CQParams {
	return driver.CQParams{PDir: r.dir.Addr(), Context: r.p.Handle, CQE: 64, Chunks: 2}
}

func (r *ground) qp() driver.QPParams {
	return driver.QPParams{
		PDir: r.dir.Addr(), PD: r.e.PD.Handle, SendCQ: r.e.SendCQ.Handle, RecvCQ: r.e.RecvCQ.Handle,
		MaxSendWR: 32, MaxSendSGE: 1, MaxRecvWR: 128, MaxRecvSGE: 1, TotalChunks: 3, SendChunks: 1,
		Type: uint8(r.g.Const("PVRDMA_QPT_RC")),
	}
}

func (r *ground) mr() driver.MRParams {
	return driver.MRParams{
		Start: 0x7f0000001000, Length: 8 * ram.PageSize, PDir: r.dir.Addr(), PD: r.e.PD.Handle, Access: 7, Chunks: 8,
	}
}

// lie is one thing that is wrong, and the errno that it gets.
type lie[P any] struct {
	change func(*P)
	want   unix.Errno
}

func testLies[P any](r *ground, honest func() P, lies map[string]lie[P], run func(P) error) {
	t := r.t
	t.Helper()
	for name, l := range lies {
		p := honest()
		l.change(&p)
		err := run(p)
		if l.want == 0 {
			if err != nil {
				t.Errorf("%s: %v, want it accepted", name, err)
			}
			continue
		}
		refused(t, name, err, l.want, unix.EFAULT)
	}
	if err := run(honest()); err != nil {
		t.Errorf("the honest command afterwards: %v", err)
	}
}

func TestACompletionQueueThatLiesIsRefused(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	r := newGround(t, d)
	type P = driver.CQParams
	over := 2 * r.g.Dev.Caps().Get32("max_cqe")
	lies := map[string]lie[P]{
		"no entries":              {func(p *P) { p.CQE = 0 }, unix.EINVAL},
		"entries not a power":     {func(p *P) { p.CQE = 63 }, unix.EINVAL},
		"2^31 entries":            {func(p *P) { p.CQE = 1 << 31 }, unix.EINVAL},
		"2^32-1 entries":          {func(p *P) { p.CQE = 1<<32 - 1 }, unix.EINVAL},
		"entries beyond the cap":  {func(p *P) { p.CQE, p.Chunks = over, 1<<18 }, unix.EINVAL},
		"no pages":                {func(p *P) { p.Chunks = 0 }, unix.EINVAL},
		"a page of indices alone": {func(p *P) { p.Chunks = 1 }, unix.EINVAL},
		"too few pages":           {func(p *P) { p.CQE = 128; p.Chunks = 2 }, unix.EINVAL},
		"2^32-1 pages":            {func(p *P) { p.Chunks = 1<<32 - 1 }, unix.EINVAL},
		"too many pages":          {func(p *P) { p.Chunks = 1<<18 + 1 }, unix.EINVAL},
		"no such context":         {func(p *P) { p.Context = 0x1234 }, unix.EINVAL},
	}
	addDirLies(r, lies, func(p *P, dir uint64) { p.PDir = dir })
	testLies(r, r.cq, lies, func(p P) error {
		h, _, err := r.g.Dev.CreateCQ(p)
		if err != nil {
			return err
		}
		return r.g.Dev.DestroyCQ(h)
	})
	n.check()
}

// addDirLies adds directories that lead nowhere.
func addDirLies[P any](r *ground, lies map[string]lie[P], set func(p *P, dir uint64)) {
	r.t.Helper()
	spoiled := func(spoil func(*driver.PageDir)) uint64 {
		pages, err := r.g.RAM.Pages(groundPages)
		if err != nil {
			r.t.Fatal(err)
		}
		dir, err := driver.NewPageDir(r.g.L, r.g.RAM, pages)
		if err != nil {
			r.t.Fatal(err)
		}
		spoil(dir)
		return dir.Addr()
	}
	spoiledPage := func(addr uint64) uint64 { return spoiled(func(d *driver.PageDir) { d.SetPage(1, addr) }) }
	spoiledTable := func(addr uint64) uint64 { return spoiled(func(d *driver.PageDir) { d.SetTable(0, addr) }) }
	last := r.g.RAM.Regions()[1]
	for name, c := range map[string]struct {
		addr uint64
		want unix.Errno
	}{
		"no directory":                   {0, unix.EINVAL},
		"a directory off its page":       {r.dir.Addr() + 8, unix.EINVAL},
		"a directory in a hole":          {3 << 30, unix.EFAULT},
		"a directory beyond memory":      {last.Addr + last.Size, unix.EFAULT},
		"a directory at the end of time": {1<<64 - ram.PageSize, unix.EFAULT},
		"a table of 0":                   {spoiledTable(0), unix.EINVAL},
		"a table in a hole":              {spoiledTable(3 << 30), unix.EFAULT},
		"a table off its page":           {spoiledTable(last.Addr + 1), unix.EINVAL},
		"a first page of 0":              {spoiled(func(d *driver.PageDir) { d.SetPage(0, 0) }), unix.EINVAL},
		"a page of 0":                    {spoiledPage(0), unix.EINVAL},
		"a page in a hole":               {spoiledPage(3 << 30), unix.EFAULT},
		"a page off its page":            {spoiledPage(last.Addr + 4), unix.EINVAL},
		"a page at the end of time":      {spoiledPage(1<<64 - ram.PageSize), unix.EFAULT},
		"a page beyond memory":           {spoiledPage(last.Addr + last.Size), unix.EFAULT},
		"one page many times":            {spoiledPage(last.Addr), 0},
	} {
		lies[name] = lie[P]{func(p *P) { set(p, c.addr) }, c.want}
	}
}

func TestAQueuePairThatLiesIsRefused(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	r := newGround(t, d)
	other := r.g.Open().Endpoint(testguest.Shape{})
	pd, err := r.g.Open().AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	shared := sharedQueue(t, pd, 16)
	type P = driver.QPParams
	over := r.g.Dev.Caps().Get32("max_qp_wr") * 2
	lies := map[string]lie[P]{
		"no pages":                 {func(p *P) { p.TotalChunks = 0 }, unix.EINVAL},
		"indices alone":            {func(p *P) { p.TotalChunks, p.SendChunks = 1, 0 }, unix.EINVAL},
		"more send pages than all": {func(p *P) { p.SendChunks = 100 }, unix.EINVAL},
		"send pages for all":       {func(p *P) { p.SendChunks = 3 }, unix.EINVAL},
		"no send pages":            {func(p *P) { p.SendChunks = 0 }, unix.EINVAL},
		"65535 send pages":         {func(p *P) { p.SendChunks, p.TotalChunks = 65535, 65535 }, unix.EINVAL},
		"too few send pages":       {func(p *P) { p.MaxSendWR = 64 }, unix.EINVAL},
		"too few receive pages":    {func(p *P) { p.MaxRecvWR = 256 }, unix.EINVAL},
		"sends not a power":        {func(p *P) { p.MaxSendWR = 31 }, unix.EINVAL},
		"receives not a power":     {func(p *P) { p.MaxRecvWR = 100 }, unix.EINVAL},
		"sends beyond the cap":     {func(p *P) { p.MaxSendWR = over }, unix.EINVAL},
		"receives beyond the cap":  {func(p *P) { p.MaxRecvWR = over }, unix.EINVAL},
		"2^31 sends":               {func(p *P) { p.MaxSendWR = 1 << 31 }, unix.EINVAL},
		"2^20 sends in one page":   {func(p *P) { p.MaxSendWR = 1 << 20 }, unix.EINVAL},
		"129 pieces":               {func(p *P) { p.MaxSendSGE = 129 }, unix.EINVAL},
		"2^28 pieces":              {func(p *P) { p.MaxSendSGE = 1 << 28 }, unix.EINVAL},
		"2^32-1 receive pieces":    {func(p *P) { p.MaxRecvSGE = 1<<32 - 1 }, unix.EINVAL},
		"no such PD":               {func(p *P) { p.PD = 0xffff }, unix.EINVAL},
		"PD 0":                     {func(p *P) { p.PD = 0 }, unix.EINVAL},
		"no such send CQ":          {func(p *P) { p.SendCQ = 0xffffff }, unix.EINVAL},
		"no such receive CQ":       {func(p *P) { p.RecvCQ = 1 << 31 }, unix.EINVAL},
		"another program's PD":     {func(p *P) { p.PD = other.PD.Handle }, unix.EINVAL},
		"another program's CQ":     {func(p *P) { p.RecvCQ = other.RecvCQ.Handle }, unix.EINVAL},
		"the kernel's CQ":          {func(p *P) { p.SendCQ = r.g.GSI.CQ.Handle }, unix.EINVAL},
		"the kernel's PD":          {func(p *P) { p.PD = r.g.GSI.PD.Handle }, unix.EINVAL},
		"a shared queue of nobody": {func(p *P) { p.IsSRQ, p.SRQ = true, 5 }, unix.EINVAL},
		"another's shared queue":   {func(p *P) { p.IsSRQ, p.SRQ = true, shared.Handle }, unix.EINVAL},
		"QP 1":                     {func(p *P) { p.Type = uint8(r.g.Const("PVRDMA_QPT_GSI")) }, unix.EOPNOTSUPP},
		"type 255":                 {func(p *P) { p.Type = 255 }, unix.EOPNOTSUPP},
	}
	addDirLies(r, lies, func(p *P, dir uint64) { p.PDir = dir })
	testLies(r, r.qp, lies, func(p P) error {
		_, h, err := r.g.Dev.CreateQP(p)
		if err != nil {
			return err
		}
		return r.g.Dev.DestroyQP(h)
	})
	n.check()
}

func TestAMemoryRegionThatLiesIsRefused(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	r := newGround(t, d)
	type P = driver.MRParams
	dma := r.g.Const("PVRDMA_MR_FLAG_DMA")
	lies := map[string]lie[P]{
		"no length":            {func(p *P) { p.Length = 0 }, unix.EINVAL},
		"2^64-1 bytes":         {func(p *P) { p.Length = 1<<64 - 1 }, unix.EINVAL},
		"2^44 bytes in 8":      {func(p *P) { p.Length = 1 << 44 }, unix.EINVAL},
		"a range that wraps":   {func(p *P) { p.Start = 1<<64 - 4096 }, unix.EINVAL},
		"a byte too many":      {func(p *P) { p.Length++ }, unix.EINVAL},
		"a start that is off":  {func(p *P) { p.Start += 0x800 }, unix.EINVAL},
		"no pages":             {func(p *P) { p.Chunks = 0 }, unix.EINVAL},
		"too few pages":        {func(p *P) { p.Chunks = 7 }, unix.EINVAL},
		"2^32-1 pages":         {func(p *P) { p.Chunks = 1<<32 - 1 }, unix.EINVAL},
		"a product that wraps": {func(p *P) { p.Length, p.Chunks = 4096, 0x100001 }, unix.EINVAL},
		"no such PD":           {func(p *P) { p.PD = 77777 }, unix.EINVAL},
		"all memory, for a program": {func(p *P) {
			*p = P{PD: p.PD, Access: 1, Flags: dma}
		}, unix.EPERM},
		"for fast registration, for a program": {func(p *P) {
			*p = P{PD: p.PD, Flags: r.g.Const("PVRDMA_MR_FLAG_FRMR"), Chunks: 16}
		}, unix.EPERM},
		"a flag of nothing": {func(p *P) { p.Flags = 1 << 30 }, unix.EINVAL},
		"two pages for 4096 bytes off a page": {func(p *P) {
			p.Start, p.Length, p.Chunks = p.Start+0x800, 4096, 2
		}, 0},
		"access bits of the future": {func(p *P) { p.Access |= 1<<20 | 1<<8 }, 0},
	}
	addDirLies(r, lies, func(p *P, dir uint64) { p.PDir = dir })
	testLies(r, r.mr, lies, func(p P) error {
		m, err := r.g.Dev.CreateMR(p)
		if err != nil {
			return err
		}
		return r.g.Dev.DestroyMR(m.Handle)
	})
	n.check()
}

func TestContextsAndGIDsThatLieAreRefused(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	r := newGround(t, d)
	dev, roce := r.g.Dev, gidType(r.g)
	uc := func(pfn uint64) error {
		_, err := dev.CreateUC(pfn)
		return err
	}
	mine, others := [16]byte{0xfe, 0x80, 15: 0x99}, n.flow.From.P.G.GIDs[0]
	for name, c := range map[string]struct {
		err  error
		want unix.Errno
	}{
		"the kernel's page":        {uc(dev.UARPFN(0)), unix.EINVAL},
		"the page before":          {uc(dev.UARPFN(0) - 1), unix.EINVAL},
		"the page behind":          {uc(dev.UARPFN(dev.UARPages())), unix.EINVAL},
		"page 0 of memory":         {uc(0), unix.EINVAL},
		"page 2^64-1":              {uc(1<<64 - 1), unix.EINVAL},
		"a GID index beyond":       {dev.CreateBind(dev.Caps().Get32("gid_tbl_len"), mine, roce), unix.EINVAL},
		"a GID index of 2^32-1":    {dev.CreateBind(1<<32-1, mine, roce), unix.EINVAL},
		"a GID of the other guest": {dev.CreateBind(7, others, roce), unix.EADDRINUSE},
		"a GID of another RoCE":    {dev.CreateBind(7, mine, roce^3), unix.EINVAL},
		"a GID that is not bound":  {dev.DestroyBind(200, mine), unix.ENOENT},
		"another GID than bound":   {dev.DestroyBind(0, mine), unix.ENOENT},
		"an index beyond, unbound": {dev.DestroyBind(1<<31, mine), unix.EINVAL},
		"a port that is not there": {portErr(dev, 2), unix.EINVAL},
		"port 0":                   {portErr(dev, 0), unix.EINVAL},
		"a PD of no context":       {pdErr(dev, 4711), unix.EINVAL},
		"destroying no PD":         {dev.DestroyPD(4711), unix.EINVAL},
		"destroying no MR":         {dev.DestroyMR(4711), unix.EINVAL},
		"destroying no CQ":         {dev.DestroyCQ(1 << 24), unix.EINVAL},
		"destroying no QP":         {dev.DestroyQP(0), unix.EINVAL},
		"destroying no context":    {dev.DestroyUC(0), unix.EINVAL},
		"querying no QP":           {queryErr(dev, 0xffffffff), unix.EINVAL},
	} {
		refused(t, name, c.err, c.want, unix.EFAULT)
	}
	n.check()
}

func portErr(d *driver.Device, port uint8) error {
	_, err := d.QueryPort(port)
	return err
}

func pdErr(d *driver.Device, context uint32) error {
	_, err := d.CreatePD(context)
	return err
}

func queryErr(d *driver.Device, qp uint32) error {
	_, err := d.QueryQP(qp, 1)
	return err
}

// A guest kernel that lost an object's destruction destroys what the object uses all the same, in any order.
func TestObjectsCanBeDestroyedInAnyOrder(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		g := d.guest("a")
		for round := range 6 {
			p := g.Open()
			e := p.Endpoint(testguest.Shape{})
			e.ConnectTo(e.Address())
			e.Recv(0, 64)
			e.Send(64, 64)
			steps := []func() error{
				func() error { return g.Dev.DestroyCQ(e.SendCQ.Handle) },
				func() error { return g.Dev.DestroyPD(e.PD.Handle) },
				func() error { return g.Dev.DestroyMR(e.MR.Handle) },
				func() error { return g.Dev.DestroyCQ(e.RecvCQ.Handle) },
				func() error { return g.Dev.DestroyQP(e.QP.Handle) },
				func() error { return g.Dev.DestroyUC(p.Handle) },
			}
			for i := range steps {
				err := steps[(i+round)%len(steps)]()
				var failed *driver.CommandError
				if err != nil && !errors.As(err, &failed) {
					t.Fatal(err)
				}
			}
			if err := g.Dev.CreateBind(9, [16]byte{0xfe, 15: byte(round)}, gidType(g)); err != nil {
				t.Fatalf("round %d: a command afterwards: %v", round, err)
			}
		}
		g.Reboot()
		d.exchangeAfter(g, n.flow.From.P.G)
		n.check()
	})
}

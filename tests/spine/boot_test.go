// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
)

func TestAGuestBootsBringsUpQP1AndLeaves(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		o := guestOptions("a")
		o.MADReceives = 0 // all that Linux posts
		g := testguest.Start(t, d.socket("a"), o)
		if g.GSI.QP.QPN != 1 {
			t.Errorf("QP 1 has number %d", g.GSI.QP.QPN)
		}
		if st, _ := g.Dev.EventStats(); st.Unknown != 0 {
			t.Errorf("%d events of completion queues that are not there", st.Unknown)
		}
		g.Stop()
		d.alive()
	})
}

// What the driver takes on trust: each of these, if wrong, damages the guest's kernel or hides the device.
func TestTheCapabilitiesAreWhatTheDriverCanBear(t *testing.T) {
	d := startDaemon(t, "poll")
	o := guestOptions("a")
	o.Driver.DirtyDSR = 0xff
	g := testguest.Start(t, d.socket("a"), o)
	c := g.Dev.Caps()
	port, err := g.Dev.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]bool{
		"the version that was asked for":    g.Dev.Version == deviceVersion(t, g),
		"the newest RoCE alone":             c.Get32("gid_types") == newestRoCE(g),
		"a table of QPs that fits":          c.Get32("max_qp") >= 2 && c.Get32("max_qp") <= 65535,
		"doorbell pages fit the BAR":        int(c.Get32("max_uar")) <= g.Dev.UARPages(),
		"queue sizes are powers of two":     isPower(c.Get32("max_qp_wr")) && isPower(c.Get32("max_cqe")),
		"an entry stays in its page":        isPower(c.Get32("max_sge")) && c.Get32("max_sge") <= 128,
		"the GSI CQ fits":                   c.Get32("max_cqe") >= 1024,
		"kernel users can read":             c.Get32("max_sge_rd") > 0,
		"address handles for the CM":        c.Get32("max_ah") >= 1024,
		"GUIDs are there":                   c.Get("node_guid") != 0 && c.Get("sys_image_guid") != 0,
		"one port":                          c.Get32("phys_port_cnt") == 1,
		"one partition":                     c.Get32("max_pkeys") >= 1,
		"no capability bits of old kernels": c.Get32("device_cap_flags") == 0,
		"port GIDs fit the table":           port.Get32("gid_tbl_len") <= c.Get32("gid_tbl_len"),
		"a byte names each GID":             c.Get32("gid_tbl_len") <= 256,
		"port is active":                    port.Get32("state") == g.Const("PVRDMA_PORT_ACTIVE"),
		"port has a partition":              port.Get32("pkey_tbl_len") == 1,
		"link is up":                        port.Get32("phys_state") == 5,
		"messages of more than 1 MiB":       port.Get32("max_msg_sz") >= 1<<30,
		"an MTU of 1024 or more":            port.Get32("active_mtu") >= 3,
		"no more MTU than possible":         port.Get32("active_mtu") <= port.Get32("max_mtu"),
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	if pkey, err := g.Dev.QueryPKey(1, 0); err != nil || pkey != 0xffff {
		t.Errorf("partition key 0 is %#x, error %v; want 0xffff", pkey, err)
	}
	for _, field := range []string{"max_raw_ipv6_qp", "max_ee", "max_rdd", "max_mw", "atomic_arg_sizes", "max_fmr"} {
		if v := c.Get(field); v != 0 {
			t.Errorf("%s is %#x, want 0: what was in memory before must be overwritten", field, v)
		}
	}
}

func isPower(n uint32) bool { return n > 0 && n&(n-1) == 0 }

func TestTheDeviceWritesNothingButTheCapabilitiesBeforeItIsActive(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		o := guestOptions("a")
		o.ProbeOnly = true
		m, err := testguest.PowerOn(d.socket("a"), o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.PowerOff()
		if err := m.Bind(); err != nil {
			t.Fatal(err)
		}
		// What lies behind the shared region in its page is somebody else's.
		tail, err := m.RAM.Bytes(m.Dev.DSRAddr()+uint64(m.L.Size("pvrdma_device_shared_region")), 1024)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tail {
			tail[i] = untouched
		}
		before := bytes.Clone(m.RAM.All())
		if err := m.Dev.WriteDSR(m.Dev.DSRAddr()); err != nil { // an active device drops everything and loads anew
			t.Fatal(err)
		}
		if err := m.Dev.WriteDSR(m.Dev.DSRAddr()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(changedPages(before, m.RAM.All()), []int(nil)); diff != "" {
			t.Errorf("pages of guest memory changed while the same capabilities were written:\n%s", diff)
		}
		if err := m.Dev.Activate(); err != nil {
			t.Errorf("activate after the shared region was loaded twice: %v", err)
		}
	})
}

// changedPages are the indices of the pages that differ.
func changedPages(a, b []byte) []int {
	var pages []int
	for i := 0; i < len(a); i += ram.PageSize {
		if !bytes.Equal(a[i:i+ram.PageSize], b[i:i+ram.PageSize]) {
			pages = append(pages, i/ram.PageSize)
		}
	}
	return pages
}

func TestADriverCanBeLoadedAndUnloadedAgainAndAgain(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		m, err := testguest.PowerOn(d.socket("a"), guestOptions("a"))
		if err != nil {
			t.Fatal(err)
		}
		defer m.PowerOff()
		for i := range 5 {
			if err := m.Bind(); err != nil {
				t.Fatalf("load %d: %v", i, err)
			}
			if err := m.Unbind(); err != nil {
				t.Fatalf("unload %d: %v", i, err)
			}
			if n := m.RAM.InUse(); n != 0 {
				t.Fatalf("unload %d leaves %d pages in use", i, n)
			}
		}
	})
}

func TestDoorbellPagesAreMappedFromPage1OnOrNotAtAll(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		g := d.guest("a")
		mapped := d.mode == "poll"
		last := g.Dev.UARPages() - 1
		if g.Dev.DoorbellPage(0) != nil {
			t.Error("the kernel's page is mapped: its doorbells must be messages")
		}
		for _, page := range []int{1, last} {
			if got := g.Dev.DoorbellPage(page) != nil; got != mapped {
				t.Errorf("page %d is mapped: %v, want %v", page, got, mapped)
			}
		}
		if g.Func.Posting() {
			t.Error("register writes are posted: the driver's probe would race with them")
		}
		registers, _ := g.Dev.BARs()
		if g.Func.Mapped(registers, 0) != nil {
			t.Error("the registers are mapped")
		}
	})
}

func TestASecondClientOfAGuestsSocketDoesNotDisturbTheFirst(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		g := d.guest("a")
		w, err := vfio.DialWire(d.socket("a"))
		if err == nil {
			_ = w.SendFrame(vfio.Header{ID: 1, Command: vfio.CmdVersion}, vfio.VersionRequest()) // may be refused
			defer w.Close()
		}
		if _, err := g.Dev.QueryPort(1); err != nil {
			t.Errorf("the first client's command: %v", err)
		}
	})
}

func TestALinkUpAfterAFailedCommandSucceeds(t *testing.T) {
	d := startDaemon(t, "poll")
	g := d.guest("a")
	if _, err := g.Dev.QueryPKey(1, 200); err == nil {
		t.Fatal("partition key 200 is there")
	}
	if err := g.Dev.Control("PVRDMA_DEVICE_CTL_UNQUIESCE"); err != nil {
		t.Errorf("a stale error fails it: %v", err)
	}
	if err := g.Dev.Control("PVRDMA_DEVICE_CTL_ACTIVATE"); err != nil {
		t.Errorf("a second ACTIVATE: %v", err)
	}
}

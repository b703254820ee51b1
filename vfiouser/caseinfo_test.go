// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// version returns a VERSION with data that ends in NUL.
func version(minor uint16, data string) frame {
	return frame{command: CommandVersion, body: versionBody(0, minor, data+"\x00")}
}

// accepted returns a scenario of a VERSION that is accepted; want, unless it is empty, is the reply's payload.
func accepted(id string, f frame, want string) scenario {
	return scenario{id, func(t *testing.T, _ *program, c *client) string {
		got := c.call(f)
		if want != "" && string(got.body) != want || len(got.fds) > 0 {
			t.Errorf("got %q and %d files, want %q", got.body, len(got.fds), want)
		}
		c.alive()
		return said(got)
	}}
}

func versionScenarios() []scenario {
	const all = `"max_msg_fds":16,"max_data_xfer_size":4096,"max_dma_maps":65535,"pgsizes":4096`
	data := func(text string) string { return string(versionBody(0, 0, text)) }
	plain := data(`{"capabilities":{` + all + "}}\x00")
	return []scenario{
		accepted("version-qemu", version(0, qemuVersionData), data(`{"capabilities":{`+all+`,"write_multiple":true}}`+"\x00")),
		accepted("version-bare", frame{command: CommandVersion, body: versionBody(0, 0, "")}, plain),
		accepted("version-minor-7", version(7, "{}"), data("")),
		accepted("version-no-room", version(0, "{}"), data("")),
		accepted("version-behind-nul", version(0, "{}\x00\x00garbage"), ""),
		accepted("version-unknown-capability", version(0, `{"capabilities":{"speed":[1,2]},"name":"x"}`), ""),
		accepted("version-null-capabilities", version(0, `{"capabilities":null}`), ""),
		accepted("version-twin-socket", version(0, `{"capabilities":{"twin_socket":{"supported":true}}}`+strings.Repeat(" ", 200)), plain),
		accepted("version-pgsizes-several", version(0, `{"capabilities":{"pgsizes":2101248}}`), ""),
		accepted("version-4100-bytes", version(0, "{}"+strings.Repeat(" ", maxVersionData-3)), ""),
	}
}

// replies returns a scenario of one message that succeeds; want is the payload of the reply.
func replies(id string, f frame, want []byte) scenario {
	return scenario{id, func(t *testing.T, _ *program, c *client) string {
		got := c.call(f)
		if !bytes.Equal(got.body, want) || len(got.fds) > 0 {
			t.Errorf("got %v and %d files, want %v", got.body, len(got.fds), want)
		}
		return said(got)
	}}
}

// describes returns a scenario of one DEVICE_GET_REGION_INFO.
func describes(id string, argsz uint32, want info) scenario {
	return scenario{id, func(t *testing.T, _ *program, c *client) string {
		return c.describe(t, argsz, want)
	}}
}

// describe asks for a region's info and compares it.
func (c *client) describe(t *testing.T, argsz uint32, want info) string {
	t.Helper()
	got := c.call(regionInfoFrame(argsz, RegionIndex(want.Index)))
	if diff := cmp.Diff(want, parseInfo(t, got)); diff != "" {
		t.Error(diff)
	}
	return said(got)
}

// describesTo is describes for a client with another VERSION than QEMU's.
func describesTo(data, id string, argsz uint32, want info) scenario {
	return scenario{id, func(t *testing.T, _ *program, c *client) string {
		c.must(version(0, data))
		return c.describe(t, argsz, want)
	}}
}

func infoScenarios() []scenario {
	whole := words(16, 3, 9, 5)
	getInfo := func(ws ...uint32) frame { return frame{command: CommandDeviceGetInfo, body: words(ws...)} }
	return []scenario{
		replies("info", getInfo(16, 0, 0, 0), whole),
		replies("info-argsz-4096", getInfo(4096, 0, 0, 0), whole),
		replies("info-reserved", getInfo(16, 0xffffffff, 0xffffffff, 0xffffffff), whole),
		{"header-error-field", func(_ *testing.T, _ *program, c *client) string {
			p := c.bytes(getInfo(16, 0, 0, 0))
			p[12] = 22
			c.write(p)
			return said(c.answer(CommandDeviceGetInfo))
		}},
		describes("region-info-bar0", 32, info{Argsz: 32, Flags: 3, Size: 16384}),
		describes("region-info-bar1-32", 32, info{Argsz: 48, Flags: 7, Index: 1, Size: 4096}),
		describes("region-info-bar1-48", 48, info{Argsz: 48, Flags: 15, Index: 1, CapOffset: 32, Size: 4096, CapID: 1, CapVersion: 1}),
		describes("region-info-bar2-79", 79, info{Argsz: 80, Flags: 7, Index: 2, Size: 16384}),
		describes("region-info-bar2-80", 80, info{
			Argsz: 80, Flags: 15, Index: 2, CapOffset: 32, Size: 16384, CapID: 1, CapVersion: 1, File: true,
			Areas: []MMapArea{{0x1000, 0x1000}, {0x2000, 0x2000}},
		}),
		describes("region-info-bar3", 32, info{Argsz: 32, Flags: 1, Index: 3, Size: 4096}),
		describes("region-info-rom", 32, info{Argsz: 32, Index: 6}),
		describes("region-info-config", 32, info{Argsz: 32, Flags: 3, Index: 7, Size: 256}),
		describes("region-info-vga", 32, info{Argsz: 32, Index: 8}),
		describesTo(`{"capabilities":{"max_msg_fds":8}}`, "region-info-no-multiple", 48, info{Argsz: 32, Flags: 3, Index: 1, Size: 4096}),
		describesTo(`{"capabilities":{"max_msg_fds":0}}`, "region-info-no-fds", 80, info{Argsz: 32, Flags: 3, Index: 2, Size: 16384}),
		{"region-mapped", storeThroughAMapping},
		replies("irq-info-intx", irqInfoFrame(IRQINTx), words(16, 7, 0, 1)),
		replies("irq-info-msi", irqInfoFrame(IRQMSI), words(16, 1, 1, 0)),
		replies("irq-info-msix", irqInfoFrame(IRQMSIX), words(16, 1, 2, 3)),
		replies("irq-info-err", irqInfoFrame(IRQErr), words(16, 1, 3, 1)),
		replies("irq-info-req", irqInfoFrame(IRQReq), words(16, 1, 4, 1)),
	}
}

// storeThroughAMapping maps a region's file and stores into it; the device sees that without a message.
func storeThroughAMapping(t *testing.T, _ *program, c *client) string {
	got := c.call(regionInfoFrame(80, RegionBAR2))
	if len(got.fds) != 1 {
		t.Fatalf("got %d files", len(got.fds))
	}
	defer unix.Close(got.fds[0])
	page, err := unix.Mmap(got.fds[0], 0x1000, 0x1000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(page[8:], []byte{1, 2, 3, 4})
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
	if data := c.read(RegionBAR2, 0x1008, 4); !bytes.Equal(data, []byte{1, 2, 3, 4}) {
		t.Errorf("got %v", data)
	}
	return said(got)
}

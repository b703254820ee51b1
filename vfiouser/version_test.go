// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestTheAnswerToQEMUsVersionFitsIntoItsRequest(t *testing.T) {
	r := start(t, nil, nil)
	c := dial(t, r.path)
	request := versionBody(0, 0, qemuVersionData+"\x00")

	got := c.must(frame{command: CommandVersion, body: request})

	if len(got.body) > len(request) {
		t.Errorf("the reply has %d bytes, the request %d", len(got.body), len(request))
	}
	want := versionBody(0, 0, `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":4096,"max_dma_maps":65535,`+
		`"pgsizes":4096,"write_multiple":true}}`+"\x00")
	if diff := cmp.Diff(string(want), string(got.body)); diff != "" {
		t.Error(diff)
	}
}

func TestTheAnswerToAVersionNeverOutgrowsTheRequestsJSON(t *testing.T) {
	for room := 1; room < 200; room++ {
		for _, multiple := range []bool{false, true} {
			p := &Peer{Capabilities: Capabilities{WriteMultiple: multiple}}

			body := appendVersion(nil, p, versionSize+room)

			if len(body) > versionSize+room {
				t.Fatalf("%d bytes for %d", len(body), versionSize+room)
			}
			if data := body[versionSize:]; len(data) > 0 && !json.Valid(bytes.TrimSuffix(data, []byte{0})) {
				t.Fatalf("got %q", data)
			}
		}
	}
}

func TestAClientWithoutJSONIsToldEverythingButFeaturesItDoesNotHave(t *testing.T) {
	r := start(t, nil, nil)
	c := dial(t, r.path)

	got := c.must(frame{command: CommandVersion, body: versionBody(0, 1, "")})

	want := versionBody(0, 0, `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":4096,"max_dma_maps":65535,"pgsizes":4096}}`+"\x00")
	if diff := cmp.Diff(string(want), string(got.body)); diff != "" {
		t.Error(diff)
	}
	defaults := Capabilities{MaxMsgFDs: 1, MaxDataXferSize: 1 << 20, MaxDMAMaps: 65535, PgSizes: 4096}
	if diff := cmp.Diff(defaults, r.session().Peer().Capabilities); diff != "" {
		t.Error(diff)
	}
}

func TestThePeerIsKnownWhenTheDeviceIsOpened(t *testing.T) {
	var got Peer
	r := start(t, func(cfg *Config) {
		open := cfg.Open
		cfg.Open = func(s *Session) (Device, error) {
			got = s.Peer()
			return open(s)
		}
	}, nil)
	c := dial(t, r.path)

	c.must(frame{command: CommandVersion, body: versionBody(0, 1, qemuVersionData+"\x00")})

	want := Peer{
		PID: int32(unix.Getpid()), UID: uint32(unix.Getuid()), GID: uint32(unix.Getgid()), Minor: 1,
		Capabilities: Capabilities{MaxMsgFDs: 16, MaxDataXferSize: 1 << 20, MaxDMAMaps: 65535, PgSizes: 4096, WriteMultiple: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Peer{want}, events(&r.seen, &r.seen.peers)); diff != "" {
		t.Error(diff)
	}
}

func TestAVersionThatIsAccepted(t *testing.T) {
	for name, data := range map[string]string{
		"empty JSON":           "{}\x00",
		"bytes behind the NUL": "{}\x00\x00garbage",
		"unknown capabilities": `{"capabilities":{"speed":[1,2]},"name":"x"}` + "\x00",
		"null capabilities":    `{"capabilities":null}` + "\x00",
		"a twin socket":        `{"capabilities":{"twin_socket":{"supported":true}}}` + "\x00",
		"several page sizes":   `{"capabilities":{"pgsizes":2101248}}` + "\x00",
		"the longest data":     "{}" + strings.Repeat(" ", maxVersionData-3) + "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil, nil)
			c := dial(t, r.path)

			c.must(frame{command: CommandVersion, body: versionBody(0, 7, data)})

			c.alive()
		})
	}
}

func handshakeFaults() []badFrame {
	version := func(data string) frame {
		return frame{command: CommandVersion, body: versionBody(0, 0, data)}
	}
	return []badFrame{
		{"first-info", command(CommandDeviceGetInfo, 16), 0, FaultHandshake, unix.EINVAL, true},
		{"first-command-4711", command(4711, 0), 0, FaultHandshake, unix.EINVAL, true},
		{"first-reply", command(CommandVersion, 4).flagged(typeReply), 0, FaultReply, 0, true},
		{"first-size-8", command(CommandVersion, 4).sized(8), 0, FaultSize, 0, true},
		{"version-0-bytes", command(CommandVersion, 0), 0, FaultVersion, unix.EINVAL, true},
		{"version-3-bytes", command(CommandVersion, 3), 0, FaultVersion, unix.EINVAL, true},
		{"version-4101-bytes", command(CommandVersion, versionSize+maxVersionData+1), 0, FaultVersion, unix.EINVAL, true},
		{"version-fd", version("{}\x00"), 1, FaultFDs, unix.EINVAL, true},
		{"version-flag", version("{}\x00").flagged(1 << 9), 0, FaultFlags, unix.EINVAL, true},
		{"version-no-reply", posted(version("{}\x00")), 0, FaultVersion, 0, true},
		{"version-major-1", frame{command: CommandVersion, body: versionBody(1, 0, "{}\x00")}, 0, FaultVersion, unix.EINVAL, true},
		{"version-no-nul", version("{}"), 0, FaultVersion, unix.EINVAL, true},
		{"version-empty-string", version("\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-brace", version("{\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-array", version("[]\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-capabilities-string", version(`{"capabilities":"23"}` + "\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-word-for-number", version(`{"capabilities":{"max_msg_fds":"foo"}}` + "\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-negative", version(`{"capabilities":{"max_msg_fds":-1}}` + "\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-30-digits", version(`{"capabilities":{"max_dma_maps":` + strings.Repeat("9", 30) + "}}\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-number-for-bool", version(`{"capabilities":{"write_multiple":1}}` + "\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-twin-number", version(`{"capabilities":{"twin_socket":1}}` + "\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-pgsizes-64k", version(`{"capabilities":{"pgsizes":65536}}` + "\x00"), 0, FaultVersion, unix.EINVAL, true},
		{"version-deep", version(strings.Repeat("[", 2000) + "\x00"), 0, FaultVersion, unix.EINVAL, true},
	}
}

func TestAHandshakeThatFailsEndsTheConnectionAndOpensNoDevice(t *testing.T) {
	for _, tc := range handshakeFaults() {
		t.Run(tc.id, func(t *testing.T) {
			r := start(t, nil, nil)
			c := dial(t, r.path)
			for range tc.files {
				tc.frame.fds = append(tc.frame.fds, newEventFD(t))
			}

			c.send(tc.frame)

			if tc.errno != 0 {
				if got := unix.Errno(c.answer(tc.frame.command).errno); got != tc.errno {
					t.Errorf("got errno %v, want %v", got, tc.errno)
				}
			}
			c.ended()
			if got := r.disconnect(1); got.Reason != ReasonProtocol || faultOf(got.Err) != tc.fault || got.Opened {
				t.Errorf("got %+v", got)
			}
			r.client().alive() // the next one is served
		})
	}
}

func TestOpenThatFailsIsToldToTheClient(t *testing.T) {
	for _, tc := range []struct {
		name string
		open func(*Session) (Device, error)
		want unix.Errno
	}{
		{"an errno", func(*Session) (Device, error) { return nil, unix.ENOMEM }, unix.ENOMEM},
		{"no device", func(*Session) (Device, error) { return nil, nil }, unix.ENODEV},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, func(cfg *Config) { cfg.Open = tc.open }, nil)
			c := dial(t, r.path)

			got := c.call(frame{command: CommandVersion, body: versionBody(0, 0, "")})

			if unix.Errno(got.errno) != tc.want {
				t.Errorf("got errno %v", unix.Errno(got.errno))
			}
			c.ended()
			if got := r.disconnect(1); got.Reason != ReasonOpen || got.Opened {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestEveryNameIsThereAndNoNameIsThereTwice(t *testing.T) {
	var names []string
	for f := range numFaults {
		names = append(names, "fault "+f.String())
	}
	for r := range numReasons {
		names = append(names, "reason "+r.String())
	}
	for c := Command(1); c < numCommands; c++ {
		names = append(names, "command "+c.String())
	}
	for i := range IRQIndex(NumIRQs) {
		names = append(names, "irq "+i.String())
	}
	for i := range RegionIndex(NumRegions) {
		names = append(names, "region "+i.String())
	}
	slices.Sort(names)
	for i, name := range names {
		if strings.HasSuffix(name, " ") || strings.HasSuffix(name, "unknown") || i > 0 && name == names[i-1] {
			t.Errorf("%q", name)
		}
	}
	if got := []string{Command(0).String(), Command(19).String(), Fault(99).String(), Reason(99).String()}; slices.Contains(got, "") {
		t.Errorf("got %q", got)
	}
}

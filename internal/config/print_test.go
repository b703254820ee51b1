// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTheEffectiveConfigurationNamesTheOriginOfEachValue(t *testing.T) {
	path := write(t, map[string]string{
		"pvrdmad.toml":      "[log]\nlevel = \"warn\"\n",
		"guests.d/vm1.toml": "# comment\ngids = [\"fe80::1\", \"fe80::2\"]\n",
	})
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Override(map[string]string{"spin": "0"}); err != nil {
		t.Fatal(err)
	}
	want := `workers = 1                                 # default
spin = "0s"                                 # --spin
windows = "auto"                            # default

[log]
level = "warn"                              # DIR/pvrdmad.toml:2
format = "text"                             # default

[metrics]
listen = "127.0.0.1:9861"                   # default

[[guest]]
name = "vm1"                                # default
socket_path = "/run/pvrdmad/vm1.sock"       # default
socket_mode = "0660"                        # default
socket_group = ""                           # default
mac = "aa:eb:b6:4f:b4:e3"                   # default
device_version = 20                         # default
roce = 2                                    # default
link = "up"                                 # default
doorbells = "poll"                          # default
max_uar = 512                               # default
max_qp = 8192                               # default
max_cq = 8192                               # default
max_mr = 131072                             # default
max_pd = 4096                               # default
max_srq = 1024                              # default
gids = ["fe80::1", "fe80::2"]               # DIR/guests.d/vm1.toml:2
cq_grace = "20us"                           # default
`
	if diff := cmp.Diff(want, strings.ReplaceAll(c.String(), filepath.Dir(path), "DIR")); diff != "" {
		t.Errorf("print differs (-want +got):\n%s", diff)
	}
}

// anyGuest draws a guest that is valid by itself.
func anyGuest(t *rapid.T, name string) Guest {
	g := DefaultGuest()
	g.Name = Name(name)
	g.SocketPath = "/run/" + rapid.StringMatching(`[^/\x00.]{1,20}`).Draw(t, "path") + name
	g.SocketMode = FileMode(0o600 | rapid.Uint32Range(0, 0o177).Draw(t, "mode"))
	g.SocketGroup = rapid.StringN(0, 8, 20).Draw(t, "group")
	g.MAC = DeriveMAC(rapid.String().Draw(t, "seed") + name)
	g.RoCE = rapid.Uint32Range(1, 2).Draw(t, "roce")
	g.Link = rapid.SampledFrom([]Link{LinkUp, LinkDown}).Draw(t, "link")
	g.Doorbells = rapid.SampledFrom([]Doorbells{DoorbellsPoll, DoorbellsTrap}).Draw(t, "doorbells")
	g.MaxUAR = 1 << rapid.IntRange(1, 12).Draw(t, "uar")
	g.MaxQP = rapid.Uint32Range(minQP, maxQP).Draw(t, "qp")
	g.CQGrace = Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "grace"))
	for i := range rapid.IntRange(0, 3).Draw(t, "gids") {
		g.GIDs = append(g.GIDs, GID{0: 0xfe, 1: 0x80, 14: byte(i), 15: name[0]})
	}
	return g
}

func TestWhatIsPrintedIsReadAsTheSame(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		c := Default()
		c.Workers = rapid.Uint32Range(1, MaxWorkers).Draw(rt, "workers")
		c.Spin = Spin{Budget: Duration(rapid.Int64Range(0, int64(time.Second)).Draw(rt, "spin"))}
		c.Windows = rapid.SampledFrom([]Windows{WindowsAuto, WindowsOff, WindowsAlways}).Draw(rt, "windows")
		for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(rt, "guests")] {
			c.Guests = append(c.Guests, anyGuest(rt, name))
		}
		path := filepath.Join(dir, "pvrdmad.toml")
		writeFile(rt, path, c.String())

		got, err := Load(path)
		if err != nil {
			rt.Fatalf("%v in\n%s", err, c.String())
		}
		if diff := cmp.Diff(&c, got, ignoreOrigins()); diff != "" {
			rt.Fatalf("configuration differs (-want +got):\n%s", diff)
		}
	})
}

func TestFlagsOfASingleGuestAreCheckedLikeAFile(t *testing.T) {
	tests := []struct {
		name   string
		values map[string]string
		want   string // the problems, or empty
	}{
		{"all", map[string]string{
			"socket-path": "/tmp/x.sock", "name": "vm1", "mac": "02:00:00:00:00:01", "doorbells": "trap", "spin": "0",
			"max-qp": "64", "gids": "fe80::1, fe80::2", "log-level": "debug", "socket-mode": "0600", "metrics-listen": "off",
		}, ""},
		{"wrong ones", map[string]string{
			"socket-path": "tmp/x.sock", "name": "VM", "mac": "x", "max-qp": "many", "max-cq": "0", "spin": "soon", "gids": "",
			"max-pd": "4294967296",
		}, `--spin: "soon" is no duration: write a number with a unit, "20us" for example, or "auto"
--name: "VM" is no guest name: use 1 to 32 of a-z, 0-9 and "-", no "-" at either end
--mac: "x" is no MAC address: write six bytes as "02:00:00:00:00:01"
--max-qp: "many" is no whole number that fits
--max-pd: "4294967296" is no whole number that fits
--gids: "" is no GID: write an address, "fe80::1" or "192.0.2.1" for example
--socket-path: "tmp/x.sock" is not absolute and clean: write it from the root, without ".." or "//"
--max-cq: 0 is out of range: write 2 to 8192`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ForFlags(tt.values)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAGuestOfFlagsIsNamedAfterItsSocketAndServesNoMetrics(t *testing.T) {
	for path, want := range map[string]Name{"/run/vm7.sock": "vm7", "/run/VM.7": "guest", "/run/a-.sock": "guest"} {
		c, err := ForFlags(map[string]string{"socket-path": path, "gids": "fe80::1,fe80::2"})
		if err != nil {
			t.Fatal(err)
		}
		if g := c.Guests[0]; g.Name != want || !c.Metrics.Listen.Off() || g.MAC != DeriveMAC(string(want)) || len(g.GIDs) != 2 {
			t.Errorf("guest of %s: %+v, metrics %+v; want name %s, its MAC, two GIDs, no metrics", path, g, c.Metrics, want)
		}
	}
}

func TestAFlagReplacesAGlobalKeyOfTheFileAndIsCheckedAgainstTheGuests(t *testing.T) {
	c, err := Load(write(t, map[string]string{"pvrdmad.toml": "[[guest]]\nname = \"a\"\n"}))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Override(map[string]string{"metrics-listen": "unix:/run/pvrdmad/a.sock"})
	var ps Problems
	want := `--metrics-listen: "/run/pvrdmad/a.sock" is the socket of guest "a": give each its own`
	if !errors.As(err, &ps) || ps.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestEveryKeyHasAFlagOfItsOwnAndADescription(t *testing.T) {
	seen := map[string]string{}
	for _, k := range Keys() {
		f := FlagName(k.Path)
		if other, ok := seen[f]; ok {
			t.Errorf("%s and %s share the flag --%s", k.Path, other, f)
		}
		seen[f] = k.Path
		if k.Doc == "" {
			t.Errorf("%s has no description", k.Path)
		}
	}
	for _, f := range []string{"socket-path", "name", "mac", "doorbells", "spin", "metrics-listen", "log-level"} {
		if seen[f] == "" {
			t.Errorf("there is no flag --%s", f)
		}
	}
}

func FuzzNoFileEndsTheProgramAndEveryProblemHasALine(f *testing.F) {
	f.Add("[[guest]]\nname=\"a\"\n[log]\nlevel=1\n")
	f.Add("guest = [{name = \"a\"}, 1]\nspin = 0\n")
	f.Add("a = '''\n[x]\n'''\r\n\"\" = 1\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, src string) {
		path := filepath.Join(dir, "pvrdmad.toml")
		writeFile(t, path, src)
		_, err := Load(path)
		var ps Problems
		if errors.As(err, &ps) {
			for _, p := range ps {
				if p.Origin.Line < 1 || p.Origin.Line > strings.Count(src, "\n")+1 {
					t.Fatalf("problem %v has no line of the file", p)
				}
			}
		}
	})
}

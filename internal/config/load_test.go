// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// write makes a configuration directory: names are relative, "pvrdmad.toml" is the main file. It returns that file's path.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, text)
	}
	return filepath.Join(dir, "pvrdmad.toml")
}

func writeFile(t interface{ Fatal(...any) }, path, text string) {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func ignoreOrigins() cmp.Option {
	return cmp.Options{cmpopts.IgnoreUnexported(Config{}, Guest{}), cmpopts.EquateEmpty()}
}

func TestAFileAndItsDropInsAreOneConfiguration(t *testing.T) {
	path := write(t, map[string]string{
		"pvrdmad.toml": `
workers = 2
spin = "50us"
windows = "off"
[log]
level = "debug"
[metrics]
listen = "unix:/run/pvrdmad/metrics.sock"
[[guest]]
name = "web"
mac = "02:00:00:00:00:07"
gids = ["fe80::7", "192.0.2.7"]
cq_grace = 0
`,
		"guests.d/db.toml":     "doorbells = \"trap\"\nmax_qp = 64\nsocket_mode = \"0600\"\n",
		"guests.d/a.toml":      "name = \"a\"\n",
		"guests.d/.swap.toml":  "nonsense",
		"guests.d/db.toml.bak": "nonsense",
	})

	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}

	web, a, db := DefaultGuest(), DefaultGuest(), DefaultGuest()
	web.Name, web.SocketPath, web.MAC = "web", "/run/pvrdmad/web.sock", MAC{2, 0, 0, 0, 0, 7}
	web.GIDs = []GID{{0: 0xfe, 1: 0x80, 15: 7}, {10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 7}}
	web.CQGrace = 0
	a.Name, a.SocketPath, a.MAC = "a", "/run/pvrdmad/a.sock", DeriveMAC("a")
	db.Name, db.SocketPath, db.MAC = "db", "/run/pvrdmad/db.sock", DeriveMAC("db")
	db.Doorbells, db.MaxQP, db.SocketMode = DoorbellsTrap, 64, 0o600
	want := &Config{
		Workers: 2,
		Spin:    Spin{Budget: Duration(50 * time.Microsecond)},
		Windows: WindowsOff,
		Log:     Log{Level: "debug", Format: "text"},
		Metrics: Metrics{Listen: Listen{Network: "unix", Address: "/run/pvrdmad/metrics.sock"}},
		Guests:  []Guest{web, a, db},
	}
	if diff := cmp.Diff(want, got, ignoreOrigins()); diff != "" {
		t.Errorf("configuration differs (-want +got):\n%s", diff)
	}
}

func TestAnEmptyFileIsAllDefaultsWithoutGuests(t *testing.T) {
	got, err := Load(write(t, map[string]string{"pvrdmad.toml": ""}))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	if diff := cmp.Diff(&want, got, ignoreOrigins()); diff != "" {
		t.Errorf("configuration differs (-want +got):\n%s", diff)
	}
}

func TestAMissingMainFileIsNotAProblemOfTheConfiguration(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.toml"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want one that is fs.ErrNotExist", err)
	}
}

func TestADropInThatCannotBeReadIsAProblem(t *testing.T) {
	path := write(t, map[string]string{"pvrdmad.toml": "", "guests.d/x.toml/file": ""})
	_, err := Load(path)
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(ps[0].Msg, "is a directory") {
		t.Errorf("error %v, want one problem: is a directory", err)
	}
}

func TestAFileThatIsTooLongIsRefused(t *testing.T) {
	path := write(t, map[string]string{"pvrdmad.toml": strings.Repeat("#", maxFileSize+1)})
	_, err := Load(path)
	if err == nil || !strings.Contains(err.Error(), "longer than 1048576 bytes") {
		t.Errorf("error %v, want one that names the bound", err)
	}
}

func TestMoreGuestsThanOneDaemonServesAreRefused(t *testing.T) {
	for name, guests := range map[string]int{"in one list": MaxGuests + 1, "with a drop-in": MaxGuests} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"pvrdmad.toml": strings.Repeat("[[guest]]\n", guests)}
			if guests == MaxGuests {
				files["guests.d/one-more.toml"] = ""
			}
			_, err := Load(write(t, files))
			var ps Problems
			if !errors.As(err, &ps) || !strings.Contains(ps[0].Msg, "serves at most 1024") {
				t.Errorf("error %v, want one that names the bound", err)
			}
		})
	}
}

func TestANamedGuestIsFoundAndOthersAreNot(t *testing.T) {
	c := Config{Guests: []Guest{{Name: "a"}, {Name: "b"}}}
	if g, ok := c.Guest("b"); !ok || g != &c.Guests[1] {
		t.Errorf("Guest(b) = %v, %v; want the second guest", g, ok)
	}
	if _, ok := c.Guest("c"); ok {
		t.Error("Guest(c) found a guest")
	}
}

func TestTheOldestDeviceHasTheAddressesThatItKnows(t *testing.T) {
	for _, c := range []struct {
		text          string
		version, roce uint32
	}{
		{"", 20, 2},
		{"device_version = 17\n", 17, 1},
		{"device_version = 17\nroce = 1\n", 17, 1},
		{"device_version = 18\n", 18, 2},
		{"device_version = 19\nroce = 1\n", 19, 1},
	} {
		got, err := Load(write(t, map[string]string{"pvrdmad.toml": "[[guest]]\nname = \"a\"\n" + c.text}))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if g := got.Guests[0]; g.DeviceVersion != c.version || g.RoCE != c.roce {
			t.Errorf("%q: version %d with RoCE v%d, want %d with v%d", c.text, g.DeviceVersion, g.RoCE, c.version, c.roce)
		}
	}
}

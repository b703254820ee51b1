// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEveryMistakeIsReportedWithItsLineAndWhatToWrite holds the texts that people see: DIR stands for the directory.
func TestEveryMistakeIsReportedWithItsLineAndWhatToWrite(t *testing.T) {
	tests := []struct {
		name, main string
		dropIns    map[string]string
		want       string
	}{
		{
			name: "syntax",
			main: "spin = \"auto\"\n[log\n",
			want: `DIR/pvrdmad.toml:2: not TOML: expected '.' or ']' to end table name, but got '\n' instead`,
		},
		{
			name: "key twice",
			main: "[log]\nlevel = \"info\"\nlevel = \"warn\"\n",
			want: `DIR/pvrdmad.toml:3: not TOML: Key 'log.level' has already been defined.`,
		},
		{
			name: "unknown keys, near and far",
			main: "# first\nspinn = \"auto\"\n\n[log]\nlevle = \"info\"\n[[guest]]\nname = \"a\"\n[[guest]]\nname = \"b\"\n" +
				"Max_QP = 3\ncolour = 1\n[metrics]\nport = 1\n",
			want: `DIR/pvrdmad.toml:2: spinn: unknown key: write "spin"
DIR/pvrdmad.toml:5: log.levle: unknown key: write "level"
DIR/pvrdmad.toml:10: Max_QP: unknown key: write "max_qp"
DIR/pvrdmad.toml:11: colour: unknown key: there are name, socket_path, socket_mode, socket_group, mac, ` +
				`device_version, roce, link, doorbells, max_uar, max_qp, max_cq, max_mr, max_pd, max_srq, gids, cq_grace
DIR/pvrdmad.toml:13: metrics.port: unknown key: there are listen`,
		},
		{
			name: "wrong types",
			main: "log = 1\nspin = 20\nguest = 3\n[metrics]\nlisten = 9861\n",
			want: `DIR/pvrdmad.toml:1: log: is a table: write [log] and its keys below
DIR/pvrdmad.toml:2: spin: want a string such as "20us", have the number 20
DIR/pvrdmad.toml:3: guest: is a list of tables: write [[guest]] before each guest's keys
DIR/pvrdmad.toml:5: metrics.listen: want a string such as "127.0.0.1:9861", have the number 9861`,
		},
		{
			name: "wrong types in a guest",
			main: "[[guest]]\nname = 1\n[[guest]]\nname = \"b\"\nsocket_mode = 0o660\nmac = true\nroce = \"2\"\ngids = \"fe80::1\"\n" +
				"doorbells = [\n  1,\n]\nmax_qp = 1.5\nsocket_path = 1979-05-27\nsocket_group = {a = 1}\nmax_pd = -1\n",
			want: `DIR/pvrdmad.toml:2: name: want a string such as "vm1", have the number 1
DIR/pvrdmad.toml:5: socket_mode: want a string such as "0660", have the number 432
DIR/pvrdmad.toml:6: mac: want a string such as "02:00:00:00:00:01", have true
DIR/pvrdmad.toml:7: roce: want a whole number without quotes, have the string "2"
DIR/pvrdmad.toml:8: gids: want a list such as ["fe80::1"], have the string "fe80::1"
DIR/pvrdmad.toml:9: doorbells: want a string such as "poll", have a list
DIR/pvrdmad.toml:12: max_qp: want a whole number without quotes, have the number 1.5
DIR/pvrdmad.toml:13: socket_path: want a string in quotes, have a date
DIR/pvrdmad.toml:14: socket_group: want a string in quotes, have a table
DIR/pvrdmad.toml:15: max_pd: -1 is out of range`,
		},
		{
			name: "values",
			main: "workers = 17\nspin = \"fast\"\nwindows = \"open\"\n[log]\nlevel = \"loud\"\nformat = \"xml\"\n[metrics]\nlisten = \"here\"\n[[guest]]\n" +
				"name = \"Web_1\"\n[[guest]]\nname = \"b\"\nmac = \"01:00:00:00:00:01\"\ncq_grace = \"2s\"\nsocket_mode = \"999\"\n" +
				"doorbells = \"push\"\ngids = [\"nope\"]\n",
			want: `DIR/pvrdmad.toml:1: workers: 17 is out of range: write 1 to 16
DIR/pvrdmad.toml:2: spin: "fast" is no duration: write a number with a unit, "20us" for example, or "auto"
DIR/pvrdmad.toml:3: windows: "open" is not known: write "auto", "off" or "always"
DIR/pvrdmad.toml:5: log.level: "loud" is not known: write "trace", "debug", "info", "warn" or "error"
DIR/pvrdmad.toml:6: log.format: "xml" is not known: write "text" or "json"
DIR/pvrdmad.toml:8: metrics.listen: "here" is no listen address: write "127.0.0.1:9861", "unix:/PATH" or "off"
DIR/pvrdmad.toml:10: name: "Web_1" is no guest name: use 1 to 32 of a-z, 0-9 and "-", no "-" at either end
DIR/pvrdmad.toml:13: mac: "01:00:00:00:00:01" is a multicast address: make the first byte even, "02" for example
DIR/pvrdmad.toml:14: cq_grace: "2s" is out of range: write "0s" to "1s"
DIR/pvrdmad.toml:15: socket_mode: "999" is no mode for a socket: write octal digits that let the owner in, "0660"
DIR/pvrdmad.toml:16: doorbells: "push" is not known: write "poll" or "trap"
DIR/pvrdmad.toml:17: gids: "nope" is no GID: write an address, "fe80::1" or "192.0.2.1" for example`,
		},
		{
			name: "ranges",
			main: "[[guest]]\nname = \"a\"\ndevice_version = 16\nroce = 3\nmax_uar = 500\nmax_qp = 65536\nmax_cq = 1\nmax_mr = 0\n" +
				"max_pd = 1\nmac = \"52:54:00:12:34:56\"\nsocket_path = \"run/a.sock\"\ngids = [\"fe80::1\", \"fe80::1\"]\n",
			want: `DIR/pvrdmad.toml:3: device_version: 16 is out of range: write 17 to 20
DIR/pvrdmad.toml:4: roce: 3 is out of range: write 1 to 2
DIR/pvrdmad.toml:5: max_uar: 500 is no power of two, and the guest's driver needs one: write 256
DIR/pvrdmad.toml:6: max_qp: 65536 is out of range: write 2 to 8192
DIR/pvrdmad.toml:7: max_cq: 1 is out of range: write 2 to 8192
DIR/pvrdmad.toml:8: max_mr: 0 is out of range: write 2 to 131072
DIR/pvrdmad.toml:9: max_pd: 1 is out of range: write 2 to 4096
DIR/pvrdmad.toml:10: mac: "52:54:00:12:34:56" is what QEMU gives every VM: GIDs made from it collide; leave mac out
DIR/pvrdmad.toml:11: socket_path: "run/a.sock" is not absolute and clean: write it from the root, without ".." or "//"
DIR/pvrdmad.toml:12: gids: fe80::1 is there twice: remove one`,
		},
		{
			name: "RoCE v2 for the device that does not know it",
			main: "[[guest]]\nname = \"a\"\ndevice_version = 17\nroce = 2\n",
			want: `DIR/pvrdmad.toml:4: roce: device_version 17 knows RoCE v1 alone: write roce = 1, or device_version = 18 to 20`,
		},
		{
			name: "a guest without a name",
			main: "[[guest]]\nname = \"a\"\n\n[[guest]]\nmax_qp = 8\n",
			want: `DIR/pvrdmad.toml:4: name: a guest needs a name: add name = "vm1" (a-z, 0-9 and "-")`,
		},
		{
			name: "what must be one guest's",
			main: "[metrics]\nlisten = \"unix:/run/pvrdmad/b.sock\"\n[[guest]]\nname = \"a\"\n[[guest]]\nname = \"b\"\n" +
				"mac = \"02:00:00:00:00:01\"\ngids = [\"fe80::1\"]\n[[guest]]\nname = \"a\"\n[[guest]]\nname = \"c\"\n" +
				"socket_path = \"/run/pvrdmad/a.sock\"\nmac = \"02:00:00:00:00:01\"\ngids = [\"fe80::2\", \"fe80::1\"]\n",
			want: `DIR/pvrdmad.toml:2: metrics.listen: "/run/pvrdmad/b.sock" is the socket of guest "b": give each its own
DIR/pvrdmad.toml:10: name: "a" is the name of guest "a" (DIR/pvrdmad.toml:4) too: rename one
DIR/pvrdmad.toml:13: socket_path: "/run/pvrdmad/a.sock" is the socket_path of guest "a" (DIR/pvrdmad.toml:3) too: give each its own
DIR/pvrdmad.toml:14: mac: "02:00:00:00:00:01" is the mac of guest "b" (DIR/pvrdmad.toml:7) too: leave mac out in one of them
DIR/pvrdmad.toml:15: gids: fe80::1 is in the list of guest "b" (DIR/pvrdmad.toml:8) too: a GID belongs to one guest`,
		},
		{
			name:    "drop-ins",
			main:    "[[guest]]\nname = \"web\"\n",
			dropIns: map[string]string{"web.toml": "", "Big.toml": "", "x.toml": "\nname = \"y\"\n", "z.toml": "guest = 1\nmax_qq = 1\n"},
			want: `DIR/guests.d/Big.toml: the file's name is the guest's, and "Big" is no guest name: ` +
				`use 1 to 32 of a-z, 0-9 and "-", no "-" at either end
DIR/guests.d/web.toml:1: name: "web" is the name of guest "web" (DIR/pvrdmad.toml:2) too: rename one
DIR/guests.d/x.toml:2: name: "y" is not the file's name: leave name out, or rename the file to y.toml
DIR/guests.d/z.toml:1: guest: unknown key: there are name, socket_path, socket_mode, socket_group, mac, ` +
				`device_version, roce, link, doorbells, max_uar, max_qp, max_cq, max_mr, max_pd, max_srq, gids, cq_grace
DIR/guests.d/z.toml:2: max_qq: unknown key: write "max_qp"`,
		},
		{
			name: "a value over too many lines",
			main: "\n[[guest]]\nname = \"a\"\ngids = [\n" + strings.Repeat("\"fe80::1\",\n", maxValueLines) + "]\n",
			want: `DIR/pvrdmad.toml:4: the value that begins here has more than 300 lines: shorten it`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{"pvrdmad.toml": tt.main}
			for name, text := range tt.dropIns {
				files["guests.d/"+name] = text
			}
			path := write(t, files)

			_, err := Load(path)

			var ps Problems
			if !errors.As(err, &ps) {
				t.Fatalf("error %v, want Problems", err)
			}
			got := strings.ReplaceAll(ps.Error(), filepath.Dir(path), "DIR")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLinesAreFoundWhateverTheShapeOfTheFile(t *testing.T) {
	src := "\ufeff# a comment\r\nspin = \"\"\"\r\nauto\"\"\"\r\n[[guest]] # one\nname = \"[x]\"\n\ngids = [\n  \"a\", # ]\n]\n" +
		"[[guest]]\n  'name' = 'b'\nlog.level = 1\n[log]\n"
	d, err := parseDocument("f", src)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"spin": 2, "guest[0]": 4, "guest[0].name": 5, "guest[0].gids": 7, "guest[1]": 10, "guest[1].name": 11,
		"guest[1].log.level": 12, "log": 13,
	}
	if diff := cmp.Diff(want, d.lines); diff != "" {
		t.Errorf("lines differ (-want +got):\n%s", diff)
	}
}

func TestWhatHasNoLineIsReportedWhereItsValueBegins(t *testing.T) {
	d := &document{file: "f", lines: map[string]int{"guest": 7, "a.b": 3}}
	for path, want := range map[string]string{"guest[2].name": "f:7", "a.b.c.d": "f:3", "zzz": "f:1"} {
		if got := d.origin(path).String(); got != want {
			t.Errorf("origin(%q) = %s, want %s", path, got, want)
		}
	}
}

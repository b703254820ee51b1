// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/internal/config"
)

// runHere runs a command in this process.
func runHere(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestMistakesHaveAnExitCodeAndANextStep(t *testing.T) {
	dir := socketDir(t)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad := file("bad.toml", "spinn = 1\n[[guest]]\nname = \"a\"\nmac = \"x\"\n")
	empty := file("empty.toml", "")
	good := file("good.toml", "[[guest]]\nname = \"a\"\n[[guest]]\nname = \"b\"\n")
	group := file("group.toml", "[[guest]]\nname = \"a\"\nsocket_group = \"no such group\"\n")
	const problems = `DIR/bad.toml:1: spinn: unknown key: write "spin"
DIR/bad.toml:4: mac: "x" is no MAC address: write six bytes as "02:00:00:00:00:01"
`
	const noGroup = `DIR/group.toml:3: socket_group: there is no group "no such group" on this host: create it, or leave socket_group out
`
	tests := []struct {
		name   string
		args   []string
		code   int
		stderr string
	}{
		{"bad file", []string{"serve", "--config", bad}, exitConfig, problems},
		{"bad file checked", []string{"check-config", "-c", bad}, exitConfig, problems},
		{"bad file for QEMU", []string{"qemu-args", "-c", bad, "a"}, exitConfig, problems},
		{"bad file for the doctor", []string{"doctor", "-c", bad}, exitConfig, problems},
		{"no such group", []string{"serve", "-c", group}, exitConfig, noGroup},
		{"no such group checked", []string{"check-config", "-c", group}, exitConfig, noGroup},
		{
			"no file", []string{"serve", "-c", dir + "/none.toml"}, exitConfig, "pvrdmad: open DIR/none.toml: no such file or directory: " +
				"write it, name another with --config FILE, or give a single guest with --socket-path PATH\n",
		},
		{"a directory", []string{"serve", "-c", dir}, exitConfig, "pvrdmad: read DIR: is a directory: name the file in it\n"},
		{
			"no guest", []string{"serve", "-c", empty}, exitConfig, "pvrdmad: no guest is configured: add [[guest]] to DIR/empty.toml, " +
				"a file to guests.d beside it, or give --socket-path PATH\n",
		},
		{
			"a single guest's flag",
			[]string{"serve", "-c", good, "--mac", "02:00:00:00:00:01"},
			exitUsage,
			"pvrdmad: --mac describes a single guest: add --socket-path PATH, or write guest.mac into a file\n",
		},
		{
			"two sources",
			[]string{"serve", "-c", good, "--socket-path", "/x"},
			exitUsage,
			"pvrdmad: --config names guests of its own: leave it out, or leave out --socket-path and --fd\n",
		},
		{
			"two sockets",
			[]string{"serve", "--fd", "3", "--socket-path", "/x"},
			exitUsage,
			"pvrdmad: --fd 3 and --socket-path /x are two sockets: leave one out\n",
		},
		{"a flag's value", []string{"--socket-path=/x", "--doorbells", "bell"}, exitConfig, "--doorbells: \"bell\" is not known: write \"poll\" or \"trap\"\n"},
		{
			"an empty socket path",
			[]string{"serve", "--socket-path", "", "--name", "-"},
			exitConfig,
			"--name: \"-\" is no guest name: use 1 to 32 of a-z, 0-9 and \"-\", no \"-\" at either end\n",
		},
		{"unknown flag", []string{"serve", "--sockets"}, exitUsage, "pvrdmad: unknown flag: --sockets\nsee pvrdmad serve --help\n"},
		{
			"unknown command",
			[]string{"srve"},
			exitUsage,
			"pvrdmad: unknown command \"srve\" for \"pvrdmad\"\n\nDid you mean this?\n\tserve\n\nsee pvrdmad --help\n",
		},
		{"an argument too many", []string{"version", "x"}, exitUsage, "pvrdmad: pvrdmad version takes no argument, \"x\" is one: leave it out\n"},
		{
			"a guest's name for the daemon",
			[]string{"serve", "vm1"},
			exitUsage,
			"pvrdmad: pvrdmad serve takes no argument, \"vm1\" is one: leave it out\n",
		},
		{
			"two guests",
			[]string{"doctor", "a", "b"},
			exitUsage,
			"pvrdmad: pvrdmad doctor takes one guest, 2 are given: name one\n",
		},
		{
			"memory without a unit",
			[]string{"qemu-args", "-c", good, "a", "--memory", "4096"},
			exitUsage,
			"pvrdmad: --memory \"4096\" is no size with a unit: write 4G or 4096M\n",
		},
		{
			"a network with an id",
			[]string{"qemu-args", "-c", good, "a", "--netdev", "tap,ifname=t0,id=x"},
			exitUsage,
			"pvrdmad: --netdev \"tap,ifname=t0,id=x\" has an id, and gets another: leave id= out\n",
		},
		{
			"a network without a back end",
			[]string{"qemu-args", "-c", good, "a", "--netdev", "ifname=t0"},
			exitUsage,
			"pvrdmad: --netdev \"ifname=t0\" does not begin with a back end: write user, or bridge,br=br0\n",
		},
		{"which guest", []string{"qemu-args", "-c", good}, exitUsage, "pvrdmad: which guest: a, b?\n"},
		{"which guest of none", []string{"qemu-args", "-c", empty}, exitUsage, "pvrdmad: which guest: none is configured?\n"},
		{"unknown guest", []string{"qemu-args", "-c", good, "c"}, exitUsage, "pvrdmad: there is no guest \"c\": name a, b\n"},
		{"unknown guest for the doctor", []string{"doctor", "-c", good, "c"}, exitUsage, "pvrdmad: there is no guest \"c\": name a, b\n"},
		{
			"metrics that cannot be served",
			[]string{"serve", "--socket-path", dir + "/x.sock", "--metrics-listen", "unix:" + dir + "/d/m"},
			exitUnavailable, `pvrdmad: metrics: listen on socket "DIR/d/m": directory "DIR/d": no such file or directory: ` +
				"change [metrics] listen, or turn it off\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := runHere(tt.args...)
			if i := strings.Index(stderr, "[INFO]"); i >= 0 { // log lines of what was opened before
				stderr = stderr[:i]
			}
			if diff := cmp.Diff(tt.stderr, strings.ReplaceAll(stderr, dir, "DIR")); diff != "" || code != tt.code || stdout != "" {
				t.Errorf("exit code %d, want %d; stdout %q; stderr differs (-want +got):\n%s", code, tt.code, stdout, diff)
			}
		})
	}
}

func TestQEMUArgumentsAreThoseOfTheGuest(t *testing.T) {
	dir := socketDir(t)
	file := filepath.Join(dir, "p.toml")
	if err := os.WriteFile(file, []byte("[[guest]]\nname = \"a\"\n[[guest]]\nname = \"b\"\nmac = \"02:00:00:00:00:0b\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, lines, _ := runHere("qemu-args", "-c", file, "b", "--memory", "1G", "--netdev", "tap,ifname=t0", "--x-no-posted-writes")
	want := `-machine q35,memory-backend=mem \
-object memory-backend-memfd,id=mem,size=1G,share=on \
-device pcie-pci-bridge,id=pvrdma-br \
-netdev tap,id=pvrdma-net,ifname=t0 \
-device vmxnet3,netdev=pvrdma-net,bus=pvrdma-br,addr=1.0,multifunction=on,mac=02:00:00:00:00:0b \
-device '{"driver":"vfio-user-pci","bus":"pvrdma-br","addr":"1.1","rombar":0,"x-no-posted-writes":true,"socket":{"type":"unix","path":"/run/pvrdmad/b.sock"}}'
`
	if diff := cmp.Diff(want, lines); diff != "" || code != exitOK {
		t.Errorf("exit code %d; arguments differ (-want +got):\n%s", code, diff)
	}
	_, text, _ := runHere("qemu-args", "-c", file, "b", "--json")
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 12 || list[0] != "-machine" {
		t.Errorf("JSON %s, %v; want 12 words", text, err)
	}
	_, text, _ = runHere("qemu-args", "--socket-path", "x.sock", "--oneline")
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, `"path":"`+wd(t)+`/x.sock"`) {
		t.Errorf("one line %q; want one, with an absolute path", text)
	}
}

func wd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestACheckedConfigurationIsPrintedAndQuietIsQuiet(t *testing.T) {
	code, text, _ := runHere("check-config", "--socket-path", "/run/vm1.sock", "--spin", "0")
	if code != exitOK || !strings.Contains(text, "spin = \"0s\"                                 # --spin\n") ||
		!strings.Contains(text, "name = \"vm1\"") {
		t.Errorf("exit code %d, text:\n%s", code, text)
	}
	if code, text, errs := runHere("check-config", "--socket-path", "/run/vm1.sock", "-q"); code != exitOK || text+errs != "" {
		t.Errorf("exit code %d, text %q", code, text+errs)
	}
}

func TestTheDoctorsExitCodeSaysWhetherSomethingIsMissing(t *testing.T) {
	code, text, errs := runHere("doctor", "--qemu", "/nonexistent/qemu", "--socket-path", "/nonexistent/x.sock")
	if code != exitFailed || errs != "" || !strings.Contains(text, "FAIL  qemu: ") || !strings.Contains(text, "warn  memory (x): ") {
		t.Errorf("exit code %d, want %d; stderr %q, text:\n%s", code, exitFailed, errs, text)
	}
	fake := filepath.Join(t.TempDir(), "qemu")
	script := "#!/bin/sh\necho version 10.1.0\necho 'name \"vfio-user-pci\"'\necho 'name \"vmxnet3\"'\n"
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, text, _ := runHere("doctor", "--qemu", fake, "--socket-path", "/nonexistent/x.sock"); code != exitOK {
		t.Errorf("exit code %d, want 0; text:\n%s", code, text)
	}
	args := []string{"doctor", "--qemu", fake, "--socket-path", "/nonexistent/x.sock", "--socket-group", "no-such-group"}
	code, text, _ = runHere(args...)
	if code != exitFailed || !strings.Contains(text, `FAIL  socket (x): there is no group "no-such-group"`) {
		t.Errorf("without the socket's group: exit code %d, want %d; text:\n%s", code, exitFailed, text)
	}
}

// TestTheDoctorSeesTheDaemonThatListens, though the kernel knows the socket by the name that it had first.
func TestTheDoctorSeesTheDaemonThatListens(t *testing.T) {
	socket := filepath.Join(socketDir(t), "x.sock")
	args := []string{"doctor", "--qemu", "/nonexistent/qemu", "--socket-path", socket}
	if _, text, _ := runHere(args...); !strings.Contains(text, "warn  socket (x): no daemon listens at") {
		t.Errorf("before the daemon is started:\n%s", text)
	}
	p := start(t, "serve", "--socket-path", socket)
	p.told("READY=1")
	if _, text, _ := runHere(args...); !strings.Contains(text, "ok    socket (x): a daemon listens at") {
		t.Errorf("while the daemon listens:\n%s", text)
	}
	p.end(syscall.SIGTERM)
}

func TestCapabilitiesArePrintedWhateverElseIsSaid(t *testing.T) {
	code, text, _ := runHere("--print-capabilities", "--mac", "x")
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil || code != exitOK || v["type"] != "pvrdma" || v["protocol"] != "vfio-user" {
		t.Errorf("exit code %d, %v: %s", code, err, text)
	}
}

func TestTheVersionIsForPeopleAndPrograms(t *testing.T) {
	if code, text, _ := runHere("version"); code != exitOK || !strings.HasPrefix(text, "pvrdmad ") || !strings.Contains(text, "engine soft") {
		t.Errorf("exit code %d, %q", code, text)
	}
	_, text, _ := runHere("version", "--json")
	var v map[string]string
	if err := json.Unmarshal([]byte(text), &v); err != nil || v["engine"] != "soft" || v["go"] == "" {
		t.Errorf("%v: %s", err, text)
	}
}

func TestNoLineOfHelpIsTooLong(t *testing.T) {
	for _, cmd := range []string{"", "serve", "qemu-args", "doctor", "check-config", "version"} {
		_, text, _ := runHere(strings.Fields(cmd + " --help")...)
		for line := range strings.Lines(text) {
			if len(strings.TrimSuffix(line, "\n")) > helpWidth {
				t.Errorf("help of %q has a line of %d columns: %s", cmd, len(line)-1, line)
			}
		}
	}
}

func TestGuestsAreOfferedToTheShell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.toml")
	if err := os.WriteFile(file, []byte("[[guest]]\nname = \"web\"\n[[guest]]\nname = \"db\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, text, _ := runHere("__complete", "qemu-args", "--config", file, "")
	if !strings.HasPrefix(text, "db\nweb\n") {
		t.Errorf("completion offers %q", text)
	}
}

func TestALongListOfGuestsIsCut(t *testing.T) {
	names := strings.Split(strings.Repeat("x ", 15), " ")[:15]
	if got := oneOf(names); !strings.HasSuffix(got, "x or one of 5 others") {
		t.Errorf("list %q", got)
	}
}

func TestTheDefaultFileThatIsNotThereStopsOnlyWhoNeedsIt(t *testing.T) {
	if _, err := os.Stat(config.DefaultPath); err == nil {
		t.Fatalf("%s exists: these tests need a machine without it", config.DefaultPath)
	}
	code, text, _ := runHere("doctor", "--qemu", "/nonexistent/qemu")
	if code != exitFailed || !strings.Contains(text, "warn  config: "+config.DefaultPath+" does not exist") {
		t.Errorf("exit code %d, text:\n%s", code, text)
	}
	if code, _, errs := runHere("check-config"); code != exitConfig || !strings.Contains(errs, config.DefaultPath) {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

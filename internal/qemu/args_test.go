// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func options() Options {
	return Options{Socket: "/run/pvrdmad/vm1.sock", MAC: "02:00:00:00:00:01", Memory: "4G", Netdev: "user"}
}

func TestTheArgumentsAreThoseThatBindTheDriver(t *testing.T) {
	tests := []struct {
		golden string
		change func(*Options)
		write  func([]string) string
	}{
		{"lines.txt", func(*Options) {}, Lines},
		{"oneline.txt", func(o *Options) { o.Netdev = "tap,ifname=tap 0"; o.Memory = "512M" }, OneLine},
		{"noposted.txt", func(o *Options) { o.NoPostedWrites = true; o.Socket = "/tmp/it's <here>, \"so\".sock" }, Lines},
	}
	for _, tt := range tests {
		t.Run(tt.golden, func(t *testing.T) {
			o := options()
			tt.change(&o)
			args, err := Args(o)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join("testdata", tt.golden))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), tt.write(args)); diff != "" {
				t.Errorf("arguments differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsPrintedIsReadBackAsTheMachineThatTheDoctorWants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := options()
		o.Socket = "/" + rapid.StringMatching(`[a-z,={}"' ]{1,30}`).Draw(t, "socket")
		o.NoPostedWrites = rapid.Bool().Draw(t, "noPosted")
		args, err := Args(o)
		if err != nil {
			t.Fatal(err)
		}
		m := ParseMachine(args)
		d, ok := m.DeviceAt(o.Socket)
		if !ok {
			t.Fatalf("no device at %q in %q", o.Socket, args)
		}
		a, ok := AddressOf(d)
		if !ok || a != (Address{Bus: bridgeID, Slot: 1, Function: 1}) {
			t.Fatalf("device is at %+v, %v", a, ok)
		}
		nic, ok := m.At(Address{Bus: bridgeID, Slot: 1})
		if !ok || nic["driver"] != "vmxnet3" || nic["multifunction"] != "on" || nic["mac"] != o.MAC {
			t.Fatalf("function 0 is %v", nic)
		}
		ids := m.MemoryBackends()
		if len(ids) != 1 {
			t.Fatalf("memory back ends %v, want one", ids)
		}
		if b, ok := m.Object(ids[0]); !ok || !Shared(b) {
			t.Fatalf("back end %v is not shared", b)
		}
	})
}

func TestAShellReadsTheWordsAsTheyWereMeant(t *testing.T) {
	o := options()
	o.Socket = "/tmp/it's a $HOME `x` \"y\" \\ socket"
	o.Netdev = "user,hostfwd=tcp::2222-:22"
	args, err := Args(o)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"lines": Lines(args), "one line": OneLine(args)} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command("/bin/sh", "-c", `for a in "$@"; do :; done; set -- `+text+`
for a in "$@"; do printf '%s\0' "$a"; done`).Output()
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
			if diff := cmp.Diff(args, got); diff != "" {
				t.Errorf("words differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheDeviceIsValidJSONWhateverThePath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := options()
		o.Socket = rapid.String().Draw(t, "socket")
		args, err := Args(o)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal([]byte(args[len(args)-1]), &v); err != nil {
			t.Fatal(err)
		}
	})
}

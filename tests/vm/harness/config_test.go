// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPvrdmaDeviceIsFunctionOneBesideTheNIC(t *testing.T) {
	for name, tc := range map[string]struct {
		opts PvrdmaOptions
		more map[string]any
	}{
		"plain":            {PvrdmaOptions{}, nil},
		"no posted writes": {PvrdmaOptions{NoPostedWrites: true}, map[string]any{"x-no-posted-writes": true}},
		"patient":          {PvrdmaOptions{MessageTimeout: 30 * time.Second}, map[string]any{"x-msg-timeout": 30000.0}},
	} {
		t.Run(name, func(t *testing.T) {
			args := PvrdmaDevice("/run/a b,c.sock", tc.opts)

			if len(args) != 2 || args[0] != "-device" {
				t.Fatalf("arguments %q, want -device and its JSON", args)
			}
			var got map[string]any
			if err := json.Unmarshal([]byte(args[1]), &got); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{
				"driver": "vfio-user-pci", "id": "pvrdma0", "bus": "br", "addr": "1.1", "rombar": 0.0,
				"socket": map[string]any{"type": "unix", "path": "/run/a b,c.sock"},
			}
			for key, value := range tc.more {
				want[key] = value
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("device (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheGuestsMemoryIsSharedAndTheNICIsFunctionZero(t *testing.T) {
	config, err := Config{Name: "a", Number: 7, Images: Images{QEMU: "q"}, Modules: []string{"x", "y"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}

	args := config.qemuArgs("/run", "/logs")

	for _, want := range []string{
		"memory-backend-memfd,id=mem,size=1024M,share=on",
		"q35,memory-backend=mem",
		"vmxnet3,bus=br,addr=1.0,multifunction=on,mac=52:54:00:77:00:07",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("arguments lack %q: %q", want, args)
		}
	}
	cmdline := args[slices.Index(args, "-append")+1]
	for _, want := range []string{"pvrdmad.ip=10.77.0.7/24", "pvrdmad.name=a", "pvrdmad.modules=x,y"} {
		if !slices.Contains(strings.Fields(cmdline), want) {
			t.Errorf("kernel command line lacks %q: %q", want, cmdline)
		}
	}
}

func TestImpossibleGuestsAreRefused(t *testing.T) {
	good := Config{Name: "a", Number: 1, Images: Images{QEMU: "q"}}
	for name, change := range map[string]func(*Config){
		"no name":            func(c *Config) { c.Name = "" },
		"a name with spaces": func(c *Config) { c.Name = "a b" },
		"a name with commas": func(c *Config) { c.Name = "a,b" },
		"number 0":           func(c *Config) { c.Number = 0 },
		"number 251":         func(c *Config) { c.Number = 251 },
		"no images":          func(c *Config) { c.Images = Images{} },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			change(&bad)
			if _, err := bad.withDefaults(); err == nil {
				t.Error("want an error")
			}
		})
	}
}

func TestImagesNeedsEveryLine(t *testing.T) {
	const whole = "PVRDMAD_VM_ROW=r\nPVRDMAD_QEMU=q\nPVRDMAD_KERNEL=k\nPVRDMAD_ROOTFS=f\nPVRDMAD_INITRD=i\nPVRDMAD_LINUX_SOURCE=s\n"

	got, err := parseImages([]byte(whole + "PVRDMAD_OF_LATER=x\n"))
	want := Images{Row: "r", QEMU: "q", Kernel: "k", RootFS: "f", Initrd: "i", LinuxSource: "s"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("images: %v (-want +got):\n%s", err, diff)
	}

	for line := range strings.Lines(whole) {
		if _, err := parseImages([]byte(strings.Replace(whole, line, "", 1))); err == nil {
			t.Errorf("no error without %q", line)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/agentproto"
)

// Config describes a guest.
type Config struct {
	Name   string // host name in the guest; also names its logs. Letters, digits and dashes
	Images Images

	// Number tells guests of one network apart, from 1 to 250: it ends the guest's MAC and IPv4 address.
	Number int
	// Switch is the network of the guest's vmxnet3 NIC; nil leaves the NIC without a peer.
	Switch *Switch

	CPUs      int      // default 2, so that emulation keeps atomics atomic
	MemoryMiB int      // default 1024; only what the guest touches is used
	Devices   []string // further QEMU arguments, for example those of PvrdmaDevice
	Modules   []string // kernel modules that are loaded, after vmxnet3, before the guest is ready
	Cmdline   []string // further words for the kernel's command line

	// LogDir receives serial.log, qemu.log and agent.log in a directory named Name. Empty: no logs are kept.
	LogDir string
}

// Slow is how much longer than on a quiet machine with two cores things may take before they count as hung: other work may
// have most of both.
const Slow = 6

// ReadyLimit is how long a boot may take.
const ReadyLimit = Slow * 30 * time.Second

// subnet is the network between guests. It never leaves the harness.
const subnet = "10.77.0."

// Address is the IPv4 address of guest number n on its vmxnet3 NIC.
func Address(n int) netip.Addr { return netip.MustParseAddr(subnet + strconv.Itoa(n)) }

// MAC is the hardware address of guest number n's vmxnet3 NIC.
func MAC(n int) string { return fmt.Sprintf("52:54:00:77:00:%02x", n) }

func (c Config) withDefaults() (Config, error) {
	if c.Number < 1 || c.Number > 250 {
		return c, fmt.Errorf("guest %q: number %d is not in 1..250", c.Name, c.Number)
	}
	if c.Name == "" || strings.Trim(c.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
		return c, fmt.Errorf("guest name %q: want letters, digits and dashes", c.Name)
	}
	if c.Images.QEMU == "" {
		return c, errors.New("guest has no images: call LoadImages first")
	}
	if c.CPUs == 0 {
		c.CPUs = 2
	}
	if c.MemoryMiB == 0 {
		c.MemoryMiB = 1024
	}
	return c, nil
}

// PvrdmaOptions are choices of PvrdmaDevice.
type PvrdmaOptions struct {
	// NoPostedWrites tells QEMU to wait for the answer to each register write.
	NoPostedWrites bool
	// MessageTimeout is how long QEMU waits for an answer before it gives the device up; 0 leaves QEMU's 5 s.
	MessageTimeout time.Duration
}

// PvrdmaDevice returns the QEMU arguments that put the device behind socketPath beside the vmxnet3 NIC, as function
// 1 of its slot, where the driver looks for it. Someone must be listening there before the guest starts.
func PvrdmaDevice(socketPath string, opts PvrdmaOptions) []string {
	device := map[string]any{
		"driver": "vfio-user-pci",
		"id":     "pvrdma0",
		"bus":    "br",
		"addr":   "1.1",
		"rombar": 0,
		"socket": map[string]string{"type": "unix", "path": socketPath},
	}
	if opts.NoPostedWrites {
		device["x-no-posted-writes"] = true
	}
	if opts.MessageTimeout > 0 {
		device["x-msg-timeout"] = opts.MessageTimeout.Milliseconds()
	}
	return []string{"-device", jsonArg(device)}
}

func jsonArg(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode QEMU argument: %v", err)) // maps of strings and numbers always encode
	}
	return string(b)
}

// qemuArgs is the whole command line; files and sockets are in run, logs in logs.
func (c Config) qemuArgs(run, logs string) []string {
	socket := func(name string) string {
		return fmt.Sprintf("socket,id=%s,path=%s,server=on,wait=off", name, filepath.Join(run, name))
	}
	args := []string{
		"-name", c.Name,
		"-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "q35,memory-backend=mem",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", strconv.Itoa(c.CPUs),
		"-m", strconv.Itoa(c.MemoryMiB),
		"-object", fmt.Sprintf("memory-backend-memfd,id=mem,size=%dM,share=on", c.MemoryMiB),
		"-kernel", c.Images.Kernel, "-initrd", c.Images.Initrd, "-append", c.cmdline(),
		"-drive", "if=none,id=root,format=raw,readonly=on,file.locking=off,file=" + c.Images.RootFS,
		"-device", "virtio-blk-pci,drive=root",
		"-chardev", socket(qmpSocket), "-mon", "mode=control,chardev=" + qmpSocket,
		"-chardev", socket(agentSocket), "-device", "virtio-serial-pci",
		"-device", "virtserialport,name=" + agentproto.PortName + ",chardev=" + agentSocket,
		"-chardev", "file,id=serial,path=" + filepath.Join(logs, serialLog), "-serial", "chardev:serial",
		"-device", "pcie-pci-bridge,id=br",
	}
	nic := "vmxnet3,bus=br,addr=1.0,multifunction=on,mac=" + MAC(c.Number)
	if c.Switch != nil {
		args = append(args, "-netdev", jsonArg(map[string]any{
			"type": "stream", "id": "net0", "server": false,
			"addr": map[string]string{"type": "unix", "path": c.Switch.path},
		}))
		nic += ",netdev=net0"
	}
	return append(append(args, "-device", nic), c.Devices...)
}

// cmdline trades what a test guest does not need (mitigations, clock checks, security modules) for a faster boot.
func (c Config) cmdline() string {
	words := []string{
		"console=ttyS0", "loglevel=5", "log_buf_len=4M",
		"mitigations=off", "tsc=reliable", "no_timer_check", "audit=0", "selinux=0", "apparmor=0",
		"rcupdate.rcu_expedited=1", "sysctl.kernel.hung_task_timeout_secs=30",
		// A host with other work may leave a guest's processor without time for longer than its kernel thinks possible.
		"watchdog_thresh=60", "rcupdate.rcu_cpu_stall_timeout=300",
		"pvrdmad.name=" + c.Name,
		"pvrdmad.ip=" + Address(c.Number).String() + "/24",
	}
	if len(c.Modules) > 0 {
		words = append(words, "pvrdmad.modules="+strings.Join(c.Modules, ","))
	}
	return strings.Join(append(words, c.Cmdline...), " ")
}

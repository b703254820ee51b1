// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// errorsEnv carries what went wrong during set-up to the agent, which tells the harness.
const errorsEnv = "PVRDMAD_SETUP_ERRORS"

// processOne sets the guest up, starts the agent and then does what every process 1 must: it reaps orphans.
func processOne() error {
	if err := mountAll(
		mount{source: "proc", target: "/proc", fstype: "proc"},
		mount{source: "sys", target: "/sys", fstype: "sysfs"},
		mount{source: "dev", target: "/dev", fstype: "devtmpfs"},
		mount{source: "pts", target: "/dev/pts", fstype: "devpts"},
		mount{source: "shm", target: "/dev/shm", fstype: "tmpfs"},
		mount{source: "run", target: "/run", fstype: "tmpfs"},
		mount{source: "tmp", target: "/tmp", fstype: "tmpfs"},
		mount{source: "cgroup", target: scriptCgroups, fstype: "cgroup2"},
		mount{source: "debug", target: "/sys/kernel/debug", fstype: "debugfs"},
	); err != nil {
		return err
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return fmt.Errorf("read kernel command line: %w", err)
	}
	failed := setUp(parseOptions(string(cmdline)))
	env := append(os.Environ(), errorsEnv+"="+strings.Join(failed, "\n"))
	agent, err := syscall.ForkExec(rootPath, []string{rootPath, agentRole}, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	return reap(agent)
}

// options are the kernel command line's words that begin with "pvrdmad.".
type options struct {
	name    string
	address netip.Prefix // of eth0; invalid for none
	modules []string     // loaded before the agent starts
	errs    []string
}

func parseOptions(cmdline string) options {
	o := options{name: "guest"}
	for word := range strings.FieldsSeq(cmdline) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "pvrdmad.name":
			o.name = value
		case "pvrdmad.ip":
			address, err := netip.ParsePrefix(value)
			if err != nil {
				o.errs = append(o.errs, err.Error())
			}
			o.address = address
		case "pvrdmad.modules":
			o.modules = strings.Split(value, ",")
		}
	}
	return o
}

// setUp returns what failed; the harness decides whether that matters.
func setUp(o options) []string {
	failed := o.errs
	note := func(err error) {
		if err != nil {
			failed = append(failed, err.Error())
		}
	}
	note(unix.Sethostname([]byte(o.name)))
	note(linkUp("lo", netip.Prefix{}))
	note(linkUp("eth0", o.address))
	for _, module := range o.modules {
		if out, err := exec.Command("modprobe", module).CombinedOutput(); err != nil {
			note(fmt.Errorf("modprobe %s: %w: %s", module, err, strings.TrimSpace(string(out))))
		}
	}
	return failed
}

// linkUp gives an interface its address, if that is valid, and brings it up.
func linkUp(name string, address netip.Prefix) error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	defer func() { _ = unix.Close(sock) }()
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	if address.IsValid() {
		mask := ^uint32(0) << (32 - address.Bits())
		bytes := address.Addr().As4()
		err = errors.Join(
			setIn4(sock, request, unix.SIOCSIFADDR, bytes[:]),
			setIn4(sock, request, unix.SIOCSIFNETMASK, []byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)}),
		)
	}
	if err == nil {
		err = unix.IoctlIfreq(sock, unix.SIOCGIFFLAGS, request)
	}
	if err == nil {
		request.SetUint16(request.Uint16() | unix.IFF_UP)
		err = unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, request)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	return nil
}

func setIn4(sock int, request *unix.Ifreq, op uint, address []byte) error {
	if err := request.SetInet4Addr(address); err != nil {
		return err
	}
	return unix.IoctlIfreq(sock, op, request)
}

func reap(agent int) error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for children: %w", err)
		}
		if pid == agent {
			return fmt.Errorf("the agent ended (wait status %#x)", status)
		}
	}
}

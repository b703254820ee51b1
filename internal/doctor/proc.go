// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pvrdmad/pvrdmad/internal/qemu"
)

// Bounds on what is read of other processes: the kernel allows 4,194,304 processes, and a virtual machine's arguments
// are a few KiB.
const (
	maxProcesses = 1 << 22
	maxCmdline   = 1 << 20
)

// process is a running virtual machine that has a vfio-user device.
type process struct {
	pid     int
	machine qemu.Machine
}

// findMachines returns the processes below proc that mention vfio-user-pci in their arguments.
func findMachines(proc string) ([]process, error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxProcesses)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var found []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if m, ok := readMachine(filepath.Join(proc, name)); ok {
			found = append(found, process{pid: pid, machine: m})
		}
	}
	return found, nil
}

// readMachine reads one process. A process that ended, or that may not be looked at, is none.
func readMachine(dir string) (qemu.Machine, bool) {
	f, err := os.Open(filepath.Join(dir, "cmdline"))
	if err != nil {
		return qemu.Machine{}, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCmdline))
	if err != nil || !bytes.Contains(b, []byte("vfio-user-pci")) {
		return qemu.Machine{}, false
	}
	args := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	m := qemu.ParseMachine(args[1:])
	// A relative path is relative to where QEMU was started.
	if cwd, err := os.Readlink(filepath.Join(dir, "cwd")); err == nil {
		for _, d := range m.Devices {
			if p := d["socket.path"]; p != "" && !filepath.IsAbs(p) {
				d["socket.path"] = filepath.Join(cwd, p)
			}
		}
	}
	return m, true
}

// memlock returns the soft limit of locked memory of this process as /proc/self/limits writes it.
func memlock(proc string) (string, error) {
	b, err := os.ReadFile(filepath.Join(proc, "self", "limits"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return fields[0], nil
			}
		}
	}
	return "", fmt.Errorf("no line for locked memory in %s/self/limits", proc)
}

// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/pvrdmad/pvrdmad/internal/config"
	"github.com/pvrdmad/pvrdmad/internal/qemu"
)

// Env is where the doctor looks.
type Env struct {
	// Proc is the proc file system, /proc.
	Proc string
	// QEMU is the binary, empty for the one on the PATH.
	QEMU string
	// Engine is the engine that carries out verbs.
	Engine string
}

// Names of checks.
const (
	checkQEMU = "qemu"
	// checkSocketName is the name of checkSocket.
	checkSocketName = "socket"
	checkMemory     = "memory"
	checkVMXNET3    = "vmxnet3"
	checkMemlock    = "memlock"
	checkVIOMMU     = "viommu"
)

// Run makes all checks, those of a guest for each of guests.
func Run(ctx context.Context, env Env, guests []config.Guest) []Finding {
	findings := []Finding{env.qemu(ctx), env.memlock()}
	machines, err := findMachines(env.Proc)
	for i := range guests {
		g := &guests[i]
		findings = append(findings, checkSocket(env.Proc, g, machines))
		if err != nil {
			findings = append(findings, Finding{
				Check: checkMemory, Guest: string(g.Name), Verdict: Warn,
				Reason: fmt.Sprintf("not checked, running virtual machines cannot be listed: %v", err),
				Next:   "run pvrdmad doctor as a user who can read " + env.Proc,
			})
			continue
		}
		findings = append(findings, checkGuest(g, machines)...)
	}
	return findings
}

func (env Env) qemu(ctx context.Context) Finding {
	f := Finding{Check: checkQEMU, Verdict: Fail}
	b, err := qemu.Find(ctx, env.QEMU)
	switch {
	case errors.Is(err, exec.ErrNotFound) && env.QEMU == "":
		f.Reason = qemu.Command + " is not on the PATH"
		f.Next = fmt.Sprintf("install QEMU %v or newer, or name it: pvrdmad doctor --qemu PATH", qemu.MinVersion())
	case err != nil:
		f.Reason = err.Error()
		f.Next = "name a QEMU that runs: pvrdmad doctor --qemu PATH"
	case b.Version.Less(qemu.MinVersion()):
		f.Reason = fmt.Sprintf("%s is %v and has no vfio-user-pci", b.Path, b.Version)
		f.Next = fmt.Sprintf("install QEMU %v or newer", qemu.MinVersion())
	case !b.VfioUserPCI:
		f.Reason = fmt.Sprintf("%s is %v but was built without vfio-user-pci", b.Path, b.Version)
		f.Next = "install a build with vfio-user (configure --enable-vfio-user), or its package of devices"
	case !b.VMXNET3:
		f.Reason = fmt.Sprintf("%s is %v but was built without vmxnet3, which the guest's driver needs", b.Path, b.Version)
		f.Next = "install a build with vmxnet3, or its package of devices"
	default:
		f.Verdict = OK
		f.Reason = fmt.Sprintf("%s is %v and has vfio-user-pci and vmxnet3", b.Path, b.Version)
	}
	return f
}

func (env Env) memlock() Finding {
	f := Finding{Check: checkMemlock, Verdict: OK}
	limit, err := memlock(env.Proc)
	if err != nil {
		limit = "unknown"
	}
	f.Reason = fmt.Sprintf("the %s engine locks no memory, so that the limit (%s) does not matter", env.Engine, limit)
	return f
}

// machineOf returns the virtual machine that uses the guest's socket, and its device there.
func machineOf(g *config.Guest, machines []process) (process, qemu.Props, bool) {
	for _, p := range machines {
		if d, ok := p.machine.DeviceAt(g.SocketPath); ok {
			return p, d, true
		}
	}
	return process{}, nil, false
}

// checkGuest checks the virtual machine that uses the guest's socket.
func checkGuest(g *config.Guest, machines []process) []Finding {
	if p, d, ok := machineOf(g, machines); ok {
		return append([]Finding{checkSharing(g, p), checkPairing(g, p, d)}, checkIOMMU(g, p)...)
	}
	unseen := fmt.Sprintf("not checked, no running QEMU that this user can see has a vfio-user-pci at %s", g.SocketPath)
	next := "start it with what pvrdmad qemu-args prints for it, then run this again; it would check that "
	return []Finding{
		{
			Check: checkMemory, Guest: string(g.Name), Verdict: Warn, Reason: unseen,
			Next: next + "the guest's memory has share=on",
		},
		{
			Check: checkVMXNET3, Guest: string(g.Name), Verdict: Warn, Reason: unseen,
			Next: next + "a vmxnet3 is at function 0 of the device's slot",
		},
	}
}

// checkSharing checks that the guest's memory can be mapped by the daemon.
func checkSharing(g *config.Guest, p process) Finding {
	f := Finding{
		Check: checkMemory, Guest: string(g.Name), Verdict: Fail,
		Next: "start QEMU with -machine memory-backend=mem -object memory-backend-memfd,id=mem,size=SIZE,share=on",
	}
	ids := p.machine.MemoryBackends()
	if len(ids) == 0 {
		f.Reason = fmt.Sprintf("QEMU %d keeps the guest's memory to itself: no memory-backend is named", p.pid)
		return p.unsure(f)
	}
	for _, id := range ids {
		b, ok := p.machine.Object(id)
		if !ok {
			f.Reason = fmt.Sprintf("QEMU %d names the memory back end %q and does not define it", p.pid, id)
			return p.unsure(f)
		}
		if !qemu.Shared(b) {
			f.Reason = fmt.Sprintf("QEMU %d keeps the guest's memory to itself: %s %q has no share=on", p.pid, b["qom-type"], id)
			return f
		}
	}
	f.Verdict, f.Next = OK, ""
	f.Reason = fmt.Sprintf("QEMU %d shares the guest's memory", p.pid)
	return f
}

// checkPairing checks that the driver will find a vmxnet3 at function 0 of the device's slot; without it the driver
// refuses the device with ENODEV.
func checkPairing(g *config.Guest, p process, d qemu.Props) Finding {
	f := Finding{
		Check: checkVMXNET3, Guest: string(g.Name), Verdict: Fail,
		Next: "start QEMU with what pvrdmad qemu-args prints for it",
	}
	at, ok := qemu.AddressOf(d)
	if !ok {
		f.Verdict = Warn
		f.Reason = fmt.Sprintf("QEMU %d chose the device's address itself, so that it shares its slot with nothing", p.pid)
		return f
	}
	if at.Function == 0 {
		f.Reason = fmt.Sprintf("QEMU %d has the device at function 0 of its slot, which must be a vmxnet3", p.pid)
		return f
	}
	nic, ok := p.machine.At(qemu.Address{Bus: at.Bus, Slot: at.Slot})
	switch {
	case !ok:
		f.Reason = fmt.Sprintf("QEMU %d has nothing at function 0 of the device's slot (bus %q, slot %#x)", p.pid, at.Bus, at.Slot)
		return p.unsure(f)
	case nic["driver"] != "vmxnet3":
		f.Reason = fmt.Sprintf("QEMU %d has a %s at function 0 of the device's slot, not a vmxnet3", p.pid, nic["driver"])
	case nic["multifunction"] != "on":
		f.Reason = fmt.Sprintf("QEMU %d has a vmxnet3 without multifunction=on, so that the guest looks no further", p.pid)
	case nic["mac"] == "":
		f.Verdict = Warn
		f.Reason = fmt.Sprintf("QEMU %d has a vmxnet3 without mac=: the default is the same for every VM, and so is its GID", p.pid)
		f.Next = "add mac=" + g.MAC.String() + " to -device vmxnet3"
	default:
		f.Verdict, f.Next = OK, ""
		f.Reason = fmt.Sprintf("QEMU %d has a vmxnet3 at function 0 of the device's slot", p.pid)
	}
	return f
}

// checkIOMMU says what a virtual IOMMU does to the device, if there is one.
func checkIOMMU(g *config.Guest, p process) []Finding {
	d, ok := p.machine.IOMMU()
	if !ok {
		return nil
	}
	f := Finding{
		Check: checkVIOMMU, Guest: string(g.Name), Verdict: Warn,
		Reason: fmt.Sprintf("QEMU %d has a virtual IOMMU (%s), behind which each page of the guest is a mapping of its own, 65535 at most",
			p.pid, d["driver"]),
		Next: "leave it out, or boot the guest's kernel with iommu=pt",
	}
	if d["driver"] == "intel-iommu" && !qemu.On(d["caching-mode"]) {
		f.Verdict = Fail
		f.Reason = fmt.Sprintf("QEMU %d has an intel-iommu without caching-mode=on, and aborts when the guest's kernel "+
			"switches it on", p.pid)
		f.Next = "leave it out, or add caching-mode=on and boot the guest's kernel with iommu=pt"
	}
	return []Finding{f}
}

// unsure makes a failure a warning if what is missing may be in a file that QEMU read.
func (p process) unsure(f Finding) Finding {
	if p.machine.HasConfigFile {
		f.Verdict = Warn
		f.Reason += " (or -readconfig does)"
	}
	return f
}

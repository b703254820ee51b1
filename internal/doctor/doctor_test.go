// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/internal/config"
	"github.com/pvrdmad/pvrdmad/internal/qemu"
)

// sockets is the kernel's list of Unix sockets: those of the daemon, of a client of its, of nobody and one with a strange name.
const sockets = `Num       RefCount Protocol Flags    Type St Inode Path
0000000056077603: 00000002 00000000 00010000 0001 01 773975 /run/pvrdmad/vm1.sock.new
0000000056077604: 00000003 00000000 00000000 0001 03 773976 /run/pvrdmad/vm2.sock.new
0000000056077605: 00000003 00000000 00000000 0001 03 773977
0000000056077606: 00000002 00000000 00010000 0001 01     78 /run/pvrdmad/a file.sock
short /run/pvrdmad/vm3.sock
`

const limits = "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         8388608    8388608    bytes\nMax x  1 1 y\n"

// fakeProc makes a proc file system: each process has its arguments.
func fakeProc(t *testing.T, processes map[int][]string) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "self", "limits"), limits)
	writeFile(t, filepath.Join(dir, "meminfo"), "")
	writeFile(t, filepath.Join(dir, "net", "unix"), sockets)
	for pid, args := range processes {
		p := filepath.Join(dir, strconv.Itoa(pid))
		writeFile(t, filepath.Join(p, "cmdline"), strings.Join(args, "\x00")+"\x00")
		if err := os.Symlink("/run/pvrdmad", filepath.Join(p, "cwd")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func fakeQEMU(t *testing.T, version string, devices ...string) string {
	t.Helper()
	script := "#!/bin/sh\ncase $1 in --version) echo QEMU emulator version " + version + ";; *)\n"
	for _, d := range devices {
		script += "echo 'name \"" + d + "\", bus PCI'\n"
	}
	path := filepath.Join(t.TempDir(), qemu.Command)
	writeFile(t, path, script+":;;\nesac\n")
	return path
}

func guest() config.Guest {
	g := config.DefaultGuest()
	g.Name, g.SocketPath, g.MAC = "vm1", "/run/pvrdmad/vm1.sock", config.DeriveMAC("vm1")
	return g
}

const (
	shared = "-object memory-backend-memfd,id=mem,size=4G,share=on -machine q35,memory-backend=mem "
	nic    = "-device vmxnet3,netdev=n,bus=br,addr=1.0,multifunction=on,mac=02:00:00:00:00:01 "
	dev    = `-device {"driver":"vfio-user-pci","bus":"br","addr":"1.1","socket":{"type":"unix","path":"/run/pvrdmad/vm1.sock"}}`
)

func TestARunningGuestIsChecked(t *testing.T) {
	const asPrinted = "start QEMU with what pvrdmad qemu-args prints for it"
	const shareIt = "start QEMU with -machine memory-backend=mem -object memory-backend-memfd,id=mem,size=SIZE,share=on"
	okMemory := Finding{Check: "memory", Guest: "vm1", Reason: "QEMU 77 shares the guest's memory"}
	okNIC := Finding{Check: "vmxnet3", Guest: "vm1", Reason: "QEMU 77 has a vmxnet3 at function 0 of the device's slot"}
	memory := func(v Verdict, reason string) Finding {
		return Finding{Check: "memory", Guest: "vm1", Verdict: v, Reason: reason, Next: shareIt}
	}
	pair := func(v Verdict, reason, next string) Finding {
		return Finding{Check: "vmxnet3", Guest: "vm1", Verdict: v, Reason: reason, Next: next}
	}
	tests := []struct {
		name, args string
		want       []Finding
	}{
		{"all is well", shared + nic + dev, []Finding{okMemory, okNIC}},
		{
			"well as libvirt writes it", `-machine pc-q35-10.1,memory-backend=pc.ram -object ` +
				`{"qom-type":"memory-backend-file","id":"pc.ram","share":true,"size":1} ` +
				`-device {"driver":"vmxnet3","bus":"pci.5","multifunction":true,"addr":"0x1","mac":"x"} ` +
				`-device {"driver":"vfio-user-pci","bus":"pci.5","addr":"0x1.0x1","socket":{"type":"unix","path":"/run/pvrdmad/vm1.sock"}}`,
			[]Finding{okMemory, okNIC},
		},
		{
			"a virtual IOMMU", shared + nic + dev + " -device intel-iommu,caching-mode=on",
			[]Finding{okMemory, okNIC, {
				Check: "viommu", Guest: "vm1", Verdict: Warn,
				Reason: "QEMU 77 has a virtual IOMMU (intel-iommu), behind which each page of the guest is a mapping of its own, 65535 at most",
				Next:   "leave it out, or boot the guest's kernel with iommu=pt",
			}},
		},
		{
			"a virtual IOMMU that ends QEMU", `-device {"driver":"intel-iommu","intremap":"on"} ` + shared + nic + dev,
			[]Finding{okMemory, okNIC, {
				Check: "viommu", Guest: "vm1", Verdict: Fail,
				Reason: "QEMU 77 has an intel-iommu without caching-mode=on, and aborts when the guest's kernel switches it on",
				Next:   "leave it out, or add caching-mode=on and boot the guest's kernel with iommu=pt",
			}},
		},
		{
			"another virtual IOMMU", shared + nic + dev + " -device virtio-iommu-pci",
			[]Finding{okMemory, okNIC, {
				Check: "viommu", Guest: "vm1", Verdict: Warn,
				Reason: "QEMU 77 has a virtual IOMMU (virtio-iommu-pci), behind which each page of the guest is a mapping of its own, 65535 at most",
				Next:   "leave it out, or boot the guest's kernel with iommu=pt",
			}},
		},
		{
			"a relative socket", shared + nic + strings.Replace(dev, "/run/pvrdmad/", "", 1),
			[]Finding{okMemory, okNIC},
		},
		{
			"memory of QEMU's own", nic + dev,
			[]Finding{memory(Fail, "QEMU 77 keeps the guest's memory to itself: no memory-backend is named"), okNIC},
		},
		{
			"private memory", strings.Replace(shared, ",share=on", ",share=off", 1) + nic + dev,
			[]Finding{memory(Fail, `QEMU 77 keeps the guest's memory to itself: memory-backend-memfd "mem" has no share=on`), okNIC},
		},
		{
			"one private node", shared + "-numa node,memdev=m2 -object memory-backend-ram,id=m2,size=1G " + nic + dev,
			[]Finding{memory(Fail, `QEMU 77 keeps the guest's memory to itself: memory-backend-ram "m2" has no share=on`), okNIC},
		},
		{
			"memory that is not there", "-machine q35,memory-backend=mem " + nic + dev,
			[]Finding{memory(Fail, `QEMU 77 names the memory back end "mem" and does not define it`), okNIC},
		},
		{
			"memory that a file may define", "-readconfig x -machine q35,memory-backend=mem " + nic + dev,
			[]Finding{memory(Warn, `QEMU 77 names the memory back end "mem" and does not define it (or -readconfig does)`), okNIC},
		},
		{
			"no NIC", shared + dev,
			[]Finding{okMemory, pair(Fail, `QEMU 77 has nothing at function 0 of the device's slot (bus "br", slot 0x1)`, asPrinted)},
		},
		{
			"a NIC on another bus", shared + strings.Replace(nic, "bus=br", "bus=b2", 1) + dev,
			[]Finding{okMemory, pair(Fail, `QEMU 77 has nothing at function 0 of the device's slot (bus "br", slot 0x1)`, asPrinted)},
		},
		{
			"another NIC", shared + strings.Replace(nic, "vmxnet3", "e1000", 1) + dev,
			[]Finding{okMemory, pair(Fail, "QEMU 77 has a e1000 at function 0 of the device's slot, not a vmxnet3", asPrinted)},
		},
		{
			"no multifunction", shared + strings.Replace(nic, "multifunction=on,", "", 1) + dev,
			[]Finding{okMemory, pair(Fail, "QEMU 77 has a vmxnet3 without multifunction=on, so that the guest looks no further", asPrinted)},
		},
		{
			"no mac", shared + strings.Replace(nic, ",mac=02:00:00:00:00:01", "", 1) + dev,
			[]Finding{okMemory, pair(Warn, "QEMU 77 has a vmxnet3 without mac=: the default is the same for every VM, and so is its GID",
				"add mac=aa:eb:b6:4f:b4:e3 to -device vmxnet3")},
		},
		{
			"the device at function 0", shared + strings.Replace(dev, `"1.1"`, `"1"`, 1),
			[]Finding{okMemory, pair(Fail, "QEMU 77 has the device at function 0 of its slot, which must be a vmxnet3", asPrinted)},
		},
		{
			"no address", shared + nic + strings.Replace(dev, `,"addr":"1.1"`, "", 1),
			[]Finding{okMemory, pair(Warn, "QEMU 77 chose the device's address itself, so that it shares its slot with nothing", asPrinted)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := Env{Engine: "soft", QEMU: fakeQEMU(t, "10.1.0", "vfio-user-pci", "vmxnet3"), Proc: fakeProc(t, map[int][]string{
				1: {"/sbin/init"}, 77: append([]string{"qemu"}, strings.Fields(tt.args)...),
				// A shell that only mentions it is no virtual machine, and neither is another guest's.
				78: {"sh", "-c", "qemu " + shared + dev}, 79: {"qemu", "-device", "vfio-user-pci,socket.path=/other"}, 80: {},
			})}
			got := Run(context.Background(), env, []config.Guest{guest()})
			if diff := cmp.Diff(tt.want, got[3:]); diff != "" {
				t.Errorf("findings differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQEMUIsJudgedByVersionAndDevices(t *testing.T) {
	tests := []struct {
		name    string
		qemu    func(*testing.T) string
		verdict Verdict
		reason  string
	}{
		{"new enough", func(t *testing.T) string { return fakeQEMU(t, "11.1.3", "vfio-user-pci", "vmxnet3") }, OK, "is 11.1.3 and has"},
		{"oldest", func(t *testing.T) string { return fakeQEMU(t, "10.1.0", "vfio-user-pci", "vmxnet3") }, OK, "is 10.1.0 and has"},
		{"too old", func(t *testing.T) string { return fakeQEMU(t, "10.0.9", "vmxnet3") }, Fail, "is 10.0.9 and has no vfio-user-pci"},
		{"without the device", func(t *testing.T) string { return fakeQEMU(t, "10.1.0", "vmxnet3") }, Fail, "without vfio-user-pci"},
		{"without vmxnet3", func(t *testing.T) string { return fakeQEMU(t, "10.1.0", "vfio-user-pci") }, Fail, "without vmxnet3"},
		{"not on the PATH", func(t *testing.T) string { t.Setenv("PATH", t.TempDir()); return "" }, Fail, "not on the PATH"},
		{"not there", func(*testing.T) string { return "/nonexistent/qemu" }, Fail, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Run(context.Background(), Env{Engine: "soft", QEMU: tt.qemu(t), Proc: fakeProc(t, nil)}, nil)[0]
			if got.Check != "qemu" || got.Verdict != tt.verdict || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("finding %+v, want %v because it %s", got, tt.verdict, tt.reason)
			}
			if (got.Next == "") != (got.Verdict == OK) {
				t.Errorf("finding %+v: what is not ok needs a next step, what is ok none", got)
			}
		})
	}
}

func TestWithoutAVirtualMachineTheDoctorSaysWhatItWouldCheck(t *testing.T) {
	env := Env{Engine: "soft", QEMU: fakeQEMU(t, "10.1.0", "vfio-user-pci", "vmxnet3"), Proc: fakeProc(t, nil)}
	got := Run(context.Background(), env, []config.Guest{guest()})
	got[0].Reason = strings.Replace(got[0].Reason, env.QEMU, "QEMU", 1)

	var b strings.Builder
	if err := Print(&b, got); err != nil {
		t.Fatal(err)
	}
	want := `ok    qemu: QEMU is 10.1.0 and has vfio-user-pci and vmxnet3
ok    memlock: the soft engine locks no memory, so that the limit (8388608) does
      not matter
ok    socket (vm1): a daemon listens at /run/pvrdmad/vm1.sock
warn  memory (vm1): not checked, no running QEMU that this user can see has a
      vfio-user-pci at /run/pvrdmad/vm1.sock
      next: start it with what pvrdmad qemu-args prints for it, then run this
      again; it would check that the guest's memory has share=on
warn  vmxnet3 (vm1): not checked, no running QEMU that this user can see has a
      vfio-user-pci at /run/pvrdmad/vm1.sock
      next: start it with what pvrdmad qemu-args prints for it, then run this
      again; it would check that a vmxnet3 is at function 0 of the device's slot
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text differs (-want +got):\n%s", diff)
	}
	if Failed(got) {
		t.Error("what could not be checked has failed")
	}
}

func TestAProcThatCannotBeReadIsAWarningForEachGuest(t *testing.T) {
	env := Env{Engine: "soft", QEMU: fakeQEMU(t, "10.1.0", "vfio-user-pci", "vmxnet3"), Proc: "/nonexistent"}
	got := Run(context.Background(), env, []config.Guest{guest()})
	if len(got) != 4 || got[2].Verdict != Warn || !strings.Contains(got[2].Reason, "sockets cannot be listed") ||
		got[3].Verdict != Warn || !strings.Contains(got[3].Reason, "machines cannot be listed") {
		t.Errorf("findings %+v, want warnings that sockets and virtual machines cannot be listed", got)
	}
	if !strings.Contains(got[1].Reason, "the limit (unknown)") {
		t.Errorf("finding %+v, want an unknown limit", got[1])
	}
}

func TestADaemonThatDoesNotListenIsFound(t *testing.T) {
	start := "start the daemon: pvrdmad serve, or systemctl start pvrdmad"
	for path, want := range map[string]Finding{
		"/run/pvrdmad/vm1.sock":    {Verdict: OK, Reason: "a daemon listens at /run/pvrdmad/vm1.sock"},
		"/run/pvrdmad/a file.sock": {Verdict: OK, Reason: "a daemon listens at /run/pvrdmad/a file.sock"},
		"/run/pvrdmad/vm2.sock":    {Verdict: Warn, Reason: "no daemon listens at /run/pvrdmad/vm2.sock", Next: start},
		"/run/pvrdmad/vm3.sock":    {Verdict: Warn, Reason: "no daemon listens at /run/pvrdmad/vm3.sock", Next: start},
		"/run/pvrdmad/vm9.sock": {
			Verdict: Fail, Reason: "no daemon listens at /run/pvrdmad/vm9.sock, so that the device of QEMU 77 is dead",
			Next: start + "; then start the virtual machine again",
		},
	} {
		g := guest()
		g.SocketPath, want.Check, want.Guest = path, "socket", "vm1"
		env := Env{Engine: "soft", QEMU: "/nonexistent/qemu", Proc: fakeProc(t, map[int][]string{
			77: append([]string{"qemu"}, strings.Fields(strings.Replace(dev, "vm1", "vm9", 1))...),
		})}
		if diff := cmp.Diff(want, Run(context.Background(), env, []config.Guest{g})[2]); diff != "" {
			t.Errorf("%s: finding differs (-want +got):\n%s", path, diff)
		}
	}
}

func TestOneFailureIsAFailure(t *testing.T) {
	if !Failed([]Finding{{}, {Verdict: Fail}, {Verdict: Warn}}) || Failed([]Finding{{}, {Verdict: Warn}}) {
		t.Error("Failed does not tell a failure from a warning")
	}
}

func TestLongWordsAreNotBroken(t *testing.T) {
	long := strings.Repeat("x", 150)
	var b strings.Builder
	wrap(&b, "ok "+long+" end "+long)
	want := "ok " + long + "\n      end\n      " + long + "\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text differs (-want +got):\n%s", diff)
	}
}

// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArgumentsAreReadInAllTheirForms(t *testing.T) {
	m := ParseMachine([]string{
		"-name", "guest=x,debug-threads=on", "-nodefaults", "--machine", "pc-q35-10.1,accel=kvm,memory-backend=pc.ram",
		"-object", `{"qom-type":"memory-backend-memfd","id":"pc.ram","share":true,"size":4294967296,"policy":{"a":{"b":null}}}`,
		"-object", "rng-random,id=r0,filename=/dev/,,x,on",
		"-numa", "node,nodeid=0,memdev=n0", "-numa", "cpu,node-id=0",
		"-device", "vmxnet3,addr=0x5.0x0", "-readconfig", "x.cfg", "-device", "vfio-user-pci,socket.path=/a,,b", "-S", "-device",
	})
	want := Machine{
		Machine: Props{"type": "pc-q35-10.1", "accel": "kvm", "memory-backend": "pc.ram"},
		Objects: []Props{
			{"qom-type": "memory-backend-memfd", "id": "pc.ram", "share": "on", "size": "4294967296", "policy.a.b": "<nil>"},
			{"qom-type": "rng-random", "id": "r0", "filename": "/dev/,x", "on": "on"},
		},
		Devices:       []Props{{"driver": "vmxnet3", "addr": "0x5.0x0"}, {"driver": "vfio-user-pci", "socket.path": "/a,b"}},
		MemDevs:       []string{"n0"},
		HasConfigFile: true,
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("machine differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"n0", "pc.ram"}, m.MemoryBackends()); diff != "" {
		t.Errorf("memory back ends differ (-want +got):\n%s", diff)
	}
}

func TestABadJSONArgumentHasNoKeys(t *testing.T) {
	m := ParseMachine([]string{"-device", `{"driver":`})
	if diff := cmp.Diff([]Props{{}}, m.Devices); diff != "" {
		t.Errorf("devices differ (-want +got):\n%s", diff)
	}
}

func TestTheDeepestNestingIsBounded(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)
	m := ParseMachine([]string{"-device", deep})
	if len(m.Devices[0]) != 0 {
		t.Errorf("keys %v of an object that is nested too deep", m.Devices[0])
	}
}

func TestMoreArgumentsThanTheBoundAreNotLookedAt(t *testing.T) {
	args := append(slices.Repeat([]string{"-S"}, maxArgs), "-device", "vmxnet3")
	if m := ParseMachine(args); len(m.Devices) != 0 {
		t.Errorf("devices %v beyond the bound", m.Devices)
	}
}

func TestAnAddressIsASlotAndAFunction(t *testing.T) {
	for addr, want := range map[string]*Address{
		"1": {Bus: "b", Slot: 1}, "1.1": {Bus: "b", Slot: 1, Function: 1}, "0x1f.0x7": {Bus: "b", Slot: 31, Function: 7},
		"0a.3": {Bus: "b", Slot: 10, Function: 3}, "20": nil, "1.8": nil, "x": nil, "": nil, "1.": nil,
	} {
		got, ok := AddressOf(Props{"bus": "b", "addr": addr})
		if ok != (want != nil) || ok && got != *want {
			t.Errorf("AddressOf(%q) = %+v, %v; want %+v", addr, got, ok, want)
		}
	}
	if _, ok := AddressOf(Props{"bus": "b"}); ok {
		t.Error("a device without addr has an address")
	}
}

func TestMemoryIsSharedAsQEMUDecides(t *testing.T) {
	for text, want := range map[string]bool{
		"memory-backend-memfd": true, "memory-backend-shm": true, "memory-backend-file": false, "memory-backend-ram": false,
		"memory-backend-memfd,share=off": false, "memory-backend-file,share=on": true, `{"qom-type":"memory-backend-file","share":true}`: true,
	} {
		if got := Shared(parseProps(text, "qom-type")); got != want {
			t.Errorf("Shared(%s) = %v", text, got)
		}
	}
}

func TestADeviceIsFoundByItsSocket(t *testing.T) {
	m := ParseMachine([]string{
		"-device", "virtio-net,socket.path=/run/a", "-device", "vfio-user-pci", "-device", "vfio-user-pci,socket.path=/run//x/../b",
	})
	if _, ok := m.DeviceAt("/run/b"); !ok {
		t.Error("the device at /run/b was not found")
	}
	for _, path := range []string{"/run/a", ""} {
		if d, ok := m.DeviceAt(path); ok {
			t.Errorf("DeviceAt(%q) = %v", path, d)
		}
	}
}

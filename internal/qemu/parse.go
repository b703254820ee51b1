// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// maxArgs bounds the arguments that are looked at: virtual machines have a few hundred.
const maxArgs = 16384

// Props are the keys of one argument, as text. What was a JSON object inside it is "KEY.INNER".
type Props map[string]string

// Machine is what the arguments of a QEMU say of its virtual machine.
type Machine struct {
	// Machine are the keys of -machine, of all of them together.
	Machine Props
	// Objects and Devices are those of -object and -device. The kind is under "qom-type" or "driver".
	Objects, Devices []Props
	// MemDevs are the memory back ends of NUMA nodes.
	MemDevs []string
	// HasConfigFile says that some of the machine is in a file named by -readconfig and cannot be seen.
	HasConfigFile bool
}

// ParseMachine reads the arguments of a QEMU, without the program's name.
func ParseMachine(args []string) Machine {
	m := Machine{Machine: Props{}}
	if len(args) > maxArgs {
		args = args[:maxArgs]
	}
	for i := 0; i+1 < len(args); i++ {
		opt, value := "-"+strings.TrimLeft(args[i], "-"), args[i+1]
		if !strings.HasPrefix(args[i], "-") {
			continue
		}
		switch opt {
		case "-machine", "-M":
			for k, v := range parseProps(value, "type") {
				m.Machine[k] = v
			}
		case "-object":
			m.Objects = append(m.Objects, parseProps(value, "qom-type"))
		case "-device":
			m.Devices = append(m.Devices, parseProps(value, "driver"))
		case "-numa":
			if id := parseProps(value, "type")["memdev"]; id != "" {
				m.MemDevs = append(m.MemDevs, id)
			}
		case "-readconfig":
			m.HasConfigFile = true
		default:
			continue
		}
		i++
	}
	return m
}

// parseProps reads KEY=VALUE,... or a JSON object. In the first form a value without a key is that of first, a comma in
// a value is doubled, and a key without a value is "on".
func parseProps(s, first string) Props {
	p := Props{}
	if strings.HasPrefix(strings.TrimSpace(s), "{") {
		var v map[string]any
		if json.Unmarshal([]byte(s), &v) == nil {
			flatten(p, "", v, maxDepth)
		}
		return p
	}
	for i, part := range splitCommas(s) {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case ok:
			p[key] = value
		case i == 0:
			p[first] = part
		case part != "":
			p[key] = "on"
		}
	}
	return p
}

// splitCommas splits at single commas and turns doubled ones into one.
func splitCommas(s string) []string {
	var parts []string
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != ',':
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == ',':
			b.WriteByte(',')
			i++
		default:
			parts = append(parts, b.String())
			b.Reset()
		}
	}
	return append(parts, b.String())
}

// maxDepth bounds how deep objects are nested in an argument: a socket address is one level.
const maxDepth = 4

func flatten(p Props, prefix string, v map[string]any, depth int) {
	for k, x := range v {
		switch x := x.(type) {
		case map[string]any:
			if depth > 0 {
				flatten(p, prefix+k+".", x, depth-1)
			}
		case bool:
			p[prefix+k] = map[bool]string{true: "on", false: "off"}[x]
		case string:
			p[prefix+k] = x
		case float64:
			p[prefix+k] = strconv.FormatFloat(x, 'f', -1, 64)
		default:
			p[prefix+k] = fmt.Sprint(x)
		}
	}
}

// DeviceAt returns the vfio-user-pci that uses the socket.
func (m *Machine) DeviceAt(socket string) (Props, bool) {
	for _, d := range m.Devices {
		if d["driver"] != "vfio-user-pci" {
			continue
		}
		if path, ok := d["socket.path"]; ok && filepath.Clean(path) == filepath.Clean(socket) {
			return d, true
		}
	}
	return nil, false
}

// MemoryBackends returns the identifiers of the back ends that hold the guest's memory; none if QEMU allocates it itself.
func (m *Machine) MemoryBackends() []string {
	ids := append([]string(nil), m.MemDevs...)
	if id := m.Machine["memory-backend"]; id != "" {
		ids = append(ids, id)
	}
	return ids
}

// Object returns the object with an identifier.
func (m *Machine) Object(id string) (Props, bool) {
	for _, o := range m.Objects {
		if o["id"] == id {
			return o, true
		}
	}
	return nil, false
}

// Shared reports whether a memory back end's memory can be mapped by another process.
func Shared(backend Props) bool {
	if v, ok := backend["share"]; ok {
		return On(v)
	}
	// QEMU's default is on for memfd and shm alone.
	return backend["qom-type"] == "memory-backend-memfd" || backend["qom-type"] == "memory-backend-shm"
}

// On reports whether a key's value says yes.
func On(v string) bool { return v == "on" || v == "true" || v == "yes" || v == "y" }

// IOMMU returns the device that is a virtual IOMMU.
func (m *Machine) IOMMU() (Props, bool) {
	for _, d := range m.Devices {
		switch d["driver"] {
		case "intel-iommu", "amd-iommu", "virtio-iommu-pci", "virtio-iommu":
			return d, true
		}
	}
	return nil, false
}

// Address is where a device sits: a bus, a slot and a function.
type Address struct {
	Bus            string
	Slot, Function int
}

// AddressOf reads the bus and the address of a device; false if QEMU chose one of them.
func AddressOf(d Props) (Address, bool) {
	addr, ok := d["addr"]
	if !ok {
		return Address{}, false
	}
	s, f, hasFunction := strings.Cut(addr, ".")
	a := Address{Bus: d["bus"]}
	var err error
	if a.Slot, err = parseHex(s); err != nil || a.Slot > 31 {
		return Address{}, false
	}
	if hasFunction {
		if a.Function, err = parseHex(f); err != nil || a.Function > 7 {
			return Address{}, false
		}
	}
	return a, true
}

// parseHex reads a number as QEMU's addr has it: hexadecimal, with or without 0x.
func parseHex(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 8)
	return int(n), err
}

// At returns the device at an address.
func (m *Machine) At(a Address) (Props, bool) {
	for _, d := range m.Devices {
		if at, ok := AddressOf(d); ok && at == a {
			return d, true
		}
	}
	return nil, false
}

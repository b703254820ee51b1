// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxNameLen bounds a guest's name: it is part of a socket path, of thread names and of every metric's labels.
const maxNameLen = 32

// Name is a guest's name: 1 to 32 characters a-z, 0-9 and "-", the first and the last no "-".
type Name string

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Name) UnmarshalText(b []byte) error {
	s := string(b)
	ok := len(s) >= 1 && len(s) <= maxNameLen && s[0] != '-' && s[len(s)-1] != '-'
	for _, r := range s {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-')
	}
	if !ok {
		return fmt.Errorf("%s is no guest name: use 1 to %d of a-z, 0-9 and \"-\", no \"-\" at either end", quote(s), maxNameLen)
	}
	*n = Name(s)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (n Name) MarshalText() ([]byte, error) { return []byte(n), nil }

// MAC is an Ethernet address.
type MAC [6]byte

// qemuDefaultMAC is the address that QEMU gives the first NIC of every virtual machine that sets none.
func qemuDefaultMAC() MAC { return MAC{0x52, 0x54, 0x00, 0x12, 0x34, 0x56} }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(b []byte) error {
	hw, err := net.ParseMAC(string(b))
	if err != nil || len(hw) != len(m) {
		return fmt.Errorf("%s is no MAC address: write six bytes as \"02:00:00:00:00:01\"", quote(string(b)))
	}
	v := MAC(hw)
	switch {
	case v == MAC{}:
		return fmt.Errorf("%s is no address of a device: leave mac out, or use one that starts with \"02\"", quote(v.String()))
	case v[0]&1 != 0:
		return fmt.Errorf("%s is a multicast address: make the first byte even, \"02\" for example", quote(v.String()))
	case v == qemuDefaultMAC():
		return fmt.Errorf("%s is what QEMU gives every VM: GIDs made from it collide; leave mac out", quote(v.String()))
	}
	*m = v
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String returns the address as "02:00:00:00:00:01".
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Doorbells is how a guest's doorbells reach the daemon.
type Doorbells string

// Doorbell modes.
const (
	// DoorbellsPoll maps the doorbell pages of user contexts into the guest; the worker polls them.
	DoorbellsPoll Doorbells = "poll"
	// DoorbellsTrap maps nothing: every doorbell is a message.
	DoorbellsTrap Doorbells = "trap"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Doorbells) UnmarshalText(b []byte) error {
	return oneOf(d, string(b), DoorbellsPoll, DoorbellsTrap)
}

// MarshalText implements encoding.TextMarshaler.
func (d Doorbells) MarshalText() ([]byte, error) { return []byte(d), nil }

// Link is the state of a guest's port.
type Link string

// Link states.
const (
	LinkUp   Link = "up"
	LinkDown Link = "down"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Link) UnmarshalText(b []byte) error { return oneOf(l, string(b), LinkUp, LinkDown) }

// MarshalText implements encoding.TextMarshaler.
func (l Link) MarshalText() ([]byte, error) { return []byte(l), nil }

// Windows says which scattered memory regions get a contiguous mapping of their own.
type Windows string

// Windows.
const (
	// WindowsAuto is for those where it pays, as far as half of vm.max_map_count reaches.
	WindowsAuto Windows = "auto"
	// WindowsOff leaves all mappings to the rest of the process.
	WindowsOff Windows = "off"
	// WindowsAlways is for all, as far as half of vm.max_map_count reaches: small ones use it up quickly.
	WindowsAlways Windows = "always"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Windows) UnmarshalText(b []byte) error {
	return oneOf(w, string(b), WindowsAuto, WindowsOff, WindowsAlways)
}

// MarshalText implements encoding.TextMarshaler.
func (w Windows) MarshalText() ([]byte, error) { return []byte(w), nil }

// LogLevel is the least level that is logged: "trace", "debug", "info", "warn" or "error".
type LogLevel string

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *LogLevel) UnmarshalText(b []byte) error {
	return oneOf(l, string(b), "trace", "debug", "info", "warn", "error")
}

// MarshalText implements encoding.TextMarshaler.
func (l LogLevel) MarshalText() ([]byte, error) { return []byte(l), nil }

// LogFormat is "text" or "json".
type LogFormat string

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *LogFormat) UnmarshalText(b []byte) error { return oneOf(f, string(b), "text", "json") }

// MarshalText implements encoding.TextMarshaler.
func (f LogFormat) MarshalText() ([]byte, error) { return []byte(f), nil }

func oneOf[T ~string](dst *T, s string, allowed ...T) error {
	if slices.Contains(allowed, T(s)) {
		*dst = T(s)
		return nil
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = strconv.Quote(string(a))
	}
	last := len(words) - 1
	return fmt.Errorf("%s is not known: write %s or %s", quote(s), strings.Join(words[:last], ", "), words[last])
}

// maxDuration bounds what a duration key may say: these are waits of a poller, not of a person.
const maxDuration = Duration(time.Second)

// Duration is a time from 0 to one second.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%s is no duration: write a number with a unit, \"20us\" for example", quote(string(b)))
	}
	if Duration(v) < 0 || Duration(v) > maxDuration {
		return fmt.Errorf("%s is out of range: write \"0s\" to \"1s\"", quote(string(b)))
	}
	*d = Duration(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(strings.Replace(time.Duration(d).String(), "µ", "u", 1)), nil
}

// Spin is how long an idle worker spins before it sleeps.
type Spin struct {
	// Auto spins only where the machine has cores to spare.
	Auto bool
	// Budget is the time if Auto is not set; 0 sleeps at the first idle step.
	Budget Duration
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Spin) UnmarshalText(b []byte) error {
	if string(b) == "auto" {
		*s = Spin{Auto: true}
		return nil
	}
	var d Duration
	if err := d.UnmarshalText(b); err != nil {
		return fmt.Errorf("%w, or \"auto\"", err)
	}
	*s = Spin{Budget: d}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (s Spin) MarshalText() ([]byte, error) {
	if s.Auto {
		return []byte("auto"), nil
	}
	return s.Budget.MarshalText()
}

// FileMode is the permission bits of a socket.
type FileMode uint32

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *FileMode) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 8, 32)
	if err != nil || v > 0o777 || v&0o600 != 0o600 {
		return fmt.Errorf("%s is no mode for a socket: write octal digits that let the owner in, \"0660\"", quote(string(b)))
	}
	*f = FileMode(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (f FileMode) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%04o", uint32(f)), nil }

// GID is an address of a RoCE port, written as an IPv6 or IPv4 address.
type GID [16]byte

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *GID) UnmarshalText(b []byte) error {
	a, err := netip.ParseAddr(string(b))
	if err != nil || a.Zone() != "" {
		return fmt.Errorf("%s is no GID: write an address, \"fe80::1\" or \"192.0.2.1\" for example", quote(string(b)))
	}
	if a.IsUnspecified() || a.IsMulticast() {
		return fmt.Errorf("%s is no address of one port: write a unicast address", quote(string(b)))
	}
	*g = GID(a.As16())
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (g GID) MarshalText() ([]byte, error) {
	return []byte(netip.AddrFrom16(g).Unmap().String()), nil
}

// Listen is where metrics are served.
type Listen struct {
	// Network is "tcp", "unix" or, for off, empty.
	Network string
	// Address is HOST:PORT or an absolute path.
	Address string
}

// Off reports whether nothing is served.
func (l Listen) Off() bool { return l.Network == "" }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Listen) UnmarshalText(b []byte) error {
	s := string(b)
	if s == "off" {
		*l = Listen{}
		return nil
	}
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if err := checkSocketPath(path); err != nil {
			return err
		}
		*l = Listen{Network: "unix", Address: path}
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s is no listen address: write \"127.0.0.1:9861\", \"unix:/PATH\" or \"off\"", quote(s))
	}
	*l = Listen{Network: "tcp", Address: s}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (l Listen) MarshalText() ([]byte, error) {
	switch l.Network {
	case "":
		return []byte("off"), nil
	case "unix":
		return []byte("unix:" + l.Address), nil
	default:
		return []byte(l.Address), nil
	}
}

// maxSocketPath is the longest path of a socket in bytes: sun_path has 108 with its NUL, unix(7), and a socket is bound
// at its path with ".new" behind it before it is moved into place.
const maxSocketPath = 103

// checkSocketPath checks that a path can be a Unix socket's wherever the daemon is started.
func checkSocketPath(p string) error {
	switch {
	case p == "" || strings.ContainsRune(p, 0):
		return fmt.Errorf("%s is no path: write an absolute path, \"%s/NAME.sock\" for example", quote(p), SocketDir)
	case !filepath.IsAbs(p) || filepath.Clean(p) != p:
		return fmt.Errorf("%s is not absolute and clean: write it from the root, without \"..\" or \"//\"", quote(p))
	case len(p) > maxSocketPath:
		return fmt.Errorf("the path has %d bytes, a socket's has at most %d: use a shorter directory", len(p), maxSocketPath)
	}
	return nil
}

// maxQuoted bounds how much of a wrong value an error repeats, in bytes.
const maxQuoted = 60

func quote(s string) string {
	if len(s) > maxQuoted {
		s = s[:maxQuoted] + "..."
	}
	return strconv.Quote(s)
}

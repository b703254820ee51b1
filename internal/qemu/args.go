// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Identifiers in the arguments of Args.
const (
	memoryID = "mem"
	bridgeID = "pvrdma-br"
	netID    = "pvrdma-net"
	// slot is where vmxnet3 (function 0) and the device (function 1) sit on the bridge: the guest's driver looks for a
	// vmxnet3 at function 0 of its own slot.
	slot = "1"
)

// Options are what Args needs to know.
type Options struct {
	// Socket is the path of the guest's socket.
	Socket string
	// MAC is the address of the guest's vmxnet3, from which its GIDs follow.
	MAC string
	// Memory is the guest's memory as QEMU writes it, "4G" for example.
	Memory string
	// Netdev is QEMU's network back end without its id, "user" or "tap,ifname=tap0" for example.
	Netdev string
	// NoPostedWrites makes every register write of the guest wait for its answer.
	NoPostedWrites bool
}

// device is the JSON form of -device vfio-user-pci, which takes its socket in no other. The order is what people read.
type device struct {
	Driver         string `json:"driver"`
	Bus            string `json:"bus"`
	Addr           string `json:"addr"`
	ROMBar         int    `json:"rombar"`
	NoPostedWrites bool   `json:"x-no-posted-writes,omitempty"`
	Socket         struct {
		Type string `json:"type"`
		Path string `json:"path"`
	} `json:"socket"`
}

// memorySize is a size with its unit: without one it would be bytes here, and MiB in QEMU's -m.
var memorySize = regexp.MustCompile(`^\d+(\.\d+)?[kKmMgGtT]$`)

// check finds what QEMU would not understand, or not as it was meant.
func (o Options) check() error {
	if !memorySize.MatchString(o.Memory) {
		return fmt.Errorf("--memory %q is no size with a unit: write 4G or 4096M", o.Memory)
	}
	for i, word := range strings.Split(o.Netdev, ",") {
		switch key, _, hasValue := strings.Cut(word, "="); {
		case i == 0 && (word == "" || hasValue && key != "type"):
			return fmt.Errorf("--netdev %q does not begin with a back end: write user, or bridge,br=br0", o.Netdev)
		case i > 0 && key == "id":
			return fmt.Errorf("--netdev %q has an id, and gets another: leave id= out", o.Netdev)
		}
	}
	return nil
}

// Args returns the arguments that give a virtual machine the guest's device: shared memory, a bridge (the driver wants
// a conventional PCI slot), vmxnet3 at function 0 and the device at function 1. Options and values alternate.
func Args(o Options) ([]string, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	d := device{Driver: "vfio-user-pci", Bus: bridgeID, Addr: slot + ".1", NoPostedWrites: o.NoPostedWrites}
	d.Socket.Type, d.Socket.Path = "unix", o.Socket
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d); err != nil {
		return nil, fmt.Errorf("write arguments for socket %q: %w", o.Socket, err)
	}
	kind, rest, _ := strings.Cut(o.Netdev, ",")
	netdev := kind + ",id=" + netID
	if rest != "" {
		netdev += "," + rest
	}
	return []string{
		"-machine", "q35,memory-backend=" + memoryID,
		"-object", "memory-backend-memfd,id=" + memoryID + ",size=" + o.Memory + ",share=on",
		"-device", "pcie-pci-bridge,id=" + bridgeID,
		"-netdev", netdev,
		"-device", "vmxnet3,netdev=" + netID + ",bus=" + bridgeID + ",addr=" + slot + ".0,multifunction=on,mac=" + o.MAC,
		"-device", strings.TrimSpace(b.String()),
	}, nil
}

// Lines writes arguments one option a line, each but the last with a backslash, so that they can be pasted into a shell.
func Lines(args []string) string {
	var b strings.Builder
	for i := 0; i+1 < len(args); i += 2 {
		end := " \\\n"
		if i+2 >= len(args) {
			end = "\n"
		}
		fmt.Fprintf(&b, "%s %s%s", args[i], shellQuote(args[i+1]), end)
	}
	return b.String()
}

// OneLine writes arguments for a shell, on one line.
func OneLine(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = shellQuote(a)
	}
	return strings.Join(words, " ") + "\n"
}

// shellQuote quotes a word for a POSIX shell if it needs it.
func shellQuote(s string) string {
	plain := s != ""
	for _, r := range s {
		plain = plain && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=+,.:/@%", r))
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

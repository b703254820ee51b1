// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Command is the binary that is looked for on the path.
const Command = "qemu-system-x86_64"

// MinVersion is the first QEMU with vfio-user-pci.
func MinVersion() Version { return Version{Major: 10, Minor: 1} }

// askTimeout bounds a question to the binary: it answers in 50 ms, from a cold disk in a second.
const askTimeout = 10 * time.Second

// maxAnswer bounds what is read of an answer in bytes: the list of all devices has 40 KiB.
const maxAnswer = 1 << 20

// Version is QEMU's version.
type Version struct{ Major, Minor, Micro int }

// String returns "MAJOR.MINOR.MICRO".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro) }

// Less reports whether v is older than o.
func (v Version) Less(o Version) bool {
	if v.Major != o.Major {
		return v.Major < o.Major
	}
	if v.Minor != o.Minor {
		return v.Minor < o.Minor
	}
	return v.Micro < o.Micro
}

// Binary is a QEMU that answered.
type Binary struct {
	Path    string
	Version Version
	// VfioUserPCI says that it has the device vfio-user-pci, VMXNET3 the device vmxnet3.
	VfioUserPCI, VMXNET3 bool
}

// Find asks the QEMU at path, or the one on the PATH if path is empty, what it is. The error wraps exec.ErrNotFound if
// there is none.
func Find(ctx context.Context, path string) (Binary, error) {
	if path == "" {
		path = Command
	}
	abs, err := exec.LookPath(path)
	if err != nil {
		return Binary{}, fmt.Errorf("find QEMU: %w", err)
	}
	b := Binary{Path: abs}
	text, err := ask(ctx, abs, "--version")
	if err != nil {
		return b, err
	}
	if b.Version, err = parseVersion(text); err != nil {
		return b, fmt.Errorf("ask %s for its version: %w", abs, err)
	}
	text, err = ask(ctx, abs, "-machine", "none", "-device", "help")
	if err != nil {
		return b, err
	}
	b.VfioUserPCI, b.VMXNET3 = hasDevice(text, "vfio-user-pci"), hasDevice(text, "vmxnet3")
	return b, nil
}

func parseVersion(text string) (Version, error) {
	m := regexp.MustCompile(`version (\d{1,4})\.(\d{1,4})\.(\d{1,4})`).FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("no version in %q", firstLine(text))
	}
	var n [3]int
	for i := range n {
		// Up to four digits always are a number.
		n[i], _ = strconv.Atoi(m[i+1])
	}
	return Version{Major: n[0], Minor: n[1], Micro: n[2]}, nil
}

// hasDevice looks for a device in what -device help prints, a line for each: name "NAME", bus PCI, ...
func hasDevice(text, name string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, `name "`+name+`"`) {
			return true
		}
	}
	return false
}

// limited keeps the first bytes that are written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), maxAnswer-l.Len())])
	return len(p), nil
}

func ask(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errOut limited
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
		return "", fmt.Errorf("run %s %s: %w: %s", path, strings.Join(args, " "), err, firstLine(errOut.String()))
	}
	return out.String(), nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line[:min(len(line), 200)]
}

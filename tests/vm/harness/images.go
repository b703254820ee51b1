// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Images says where the pieces of one row of matrix.toml are. All are paths.
type Images struct {
	Row         string // the row's name
	QEMU        string // a qemu-system-x86_64
	Kernel      string // the guest's kernel, an ELF vmlinux
	RootFS      string // the guest's root, a squashfs image that all guests share
	Initrd      string // the agent, and the modules that reach the root
	LinuxSource string // the parts of the kernel's source that the driver was built from
}

// imagesScript is the builder's path inside the checkout.
const imagesScript = "tests/vm/images/images"

// LoadImages builds the images that are missing, checks those in the cache and says where they are. The first build
// on a machine takes a few minutes and needs root; its progress goes to standard error. The row is the environment's
// PVRDMAD_VM_ROW, or else the first of matrix.toml.
func LoadImages(ctx context.Context) (Images, error) { return loadImages(ctx) }

// LoadImagesOf is LoadImages of a row, whatever the environment says.
func LoadImagesOf(ctx context.Context, row string) (Images, error) {
	return loadImages(ctx, "--row", row)
}

func loadImages(ctx context.Context, options ...string) (Images, error) {
	script, err := findUp(imagesScript)
	if err != nil {
		return Images{}, err
	}
	cmd := exec.CommandContext(ctx, script, append([]string{"env"}, options...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	out, err := cmd.Output()
	if err != nil {
		return Images{}, fmt.Errorf("vm lane: %s env: %w (its message is above)", script, err)
	}
	return parseImages(out)
}

func parseImages(out []byte) (Images, error) {
	var images Images
	fields := map[string]*string{
		"PVRDMAD_VM_ROW":       &images.Row,
		"PVRDMAD_QEMU":         &images.QEMU,
		"PVRDMAD_KERNEL":       &images.Kernel,
		"PVRDMAD_ROOTFS":       &images.RootFS,
		"PVRDMAD_INITRD":       &images.Initrd,
		"PVRDMAD_LINUX_SOURCE": &images.LinuxSource,
	}
	for line := range bytes.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "=")
		if field := fields[key]; field != nil {
			*field = value
			delete(fields, key)
		}
	}
	for key := range fields {
		return Images{}, fmt.Errorf("vm lane: %s env printed no %s", imagesScript, key)
	}
	return images, nil
}

// TestData is the path of a file in tests/vm/testdata, wherever in the checkout the program runs.
func TestData(name string) (string, error) { return findUp("tests/vm/testdata/" + name) }

// findUp looks for a file of the checkout from the working directory upwards.
func findUp(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, name)
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", fmt.Errorf("vm lane: find %s above the working directory: %w", name, err)
		}
	}
}

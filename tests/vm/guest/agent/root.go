// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
	}
	return nil
}

func mountAll(mounts ...mount) error {
	for _, m := range mounts {
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

// reachRoot mounts the shared read-only image with a writable layer of its own over it, and goes on as process 1
// in there. The modules come from the initramfs, uncompressed; vmxnet3 is among them, so it is bound before any
// vmw_pvrdma can look for it.
func reachRoot() error {
	if err := mountAll(
		mount{source: "dev", target: "/dev", fstype: "devtmpfs"},
		mount{source: "proc", target: "/proc", fstype: "proc"},
	); err != nil {
		return err
	}
	if err := loadBootModules("/modules"); err != nil {
		return err
	}
	if err := mountAll(
		mount{source: "/dev/vda", target: "/lower", fstype: "squashfs", flags: unix.MS_RDONLY},
		mount{source: "rw", target: "/rw", fstype: "tmpfs"},
	); err != nil {
		return err
	}
	for _, dir := range []string{"/rw/upper", "/rw/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make overlay directory: %w", err)
		}
	}
	root := mount{
		source: "root", target: "/root", fstype: "overlay",
		data: "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work",
	}
	if err := root.do(); err != nil {
		return err
	}
	if err := copyPayload("/root"); err != nil {
		return err
	}
	return enterRoot("/root")
}

func loadBootModules(dir string) error {
	order, err := os.ReadFile(filepath.Join(dir, "order"))
	if err != nil {
		return fmt.Errorf("read boot modules: %w", err)
	}
	for name := range strings.FieldsSeq(string(order)) {
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("open boot module: %w", err)
		}
		err = unix.FinitModule(int(file.Fd()), "", 0)
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("load boot module %s: %w", name, err)
		}
	}
	return nil
}

// copyPayload brings this program, and the programs that were built with it, into the root.
func copyPayload(root string) error {
	if err := copyProgram(initPath, root+rootPath); err != nil {
		return err
	}
	programs, err := filepath.Glob("/payload/*")
	if err != nil {
		return fmt.Errorf("list payload: %w", err)
	}
	for _, program := range programs {
		if err := copyProgram(program, root+"/usr/local/bin/"+filepath.Base(program)); err != nil {
			return err
		}
	}
	return nil
}

func copyProgram(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy into the root: %w", err)
	}
	defer func() { _ = src.Close() }()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("copy into the root: %w", err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		return fmt.Errorf("copy %s into the root: %w", from, err)
	}
	if err := dst.Close(); err != nil {
		return fmt.Errorf("copy %s into the root: %w", from, err)
	}
	return nil
}

func enterRoot(root string) error {
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root to /: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "LANG=C.UTF-8"}
	if err := unix.Exec(rootPath, []string{rootPath}, env); err != nil {
		return fmt.Errorf("start %s: %w", rootPath, err)
	}
	return nil
}

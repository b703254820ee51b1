// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/linuxsource"
)

const (
	driverDir  = "drivers/infiniband/hw/vmw_pvrdma"
	uapiDir    = "include/uapi"
	uapiHeader = "rdma/vmw_pvrdma-abi.h"
	shimDir    = "testdata/shim"
)

// abiHeaders are the headers whose every type and constant this package must know.
var abiHeaders = []string{
	"vmw_pvrdma-abi.h", "pvrdma_dev_api.h", "pvrdma_ring.h", "pvrdma_verbs.h",
}

// gcc runs the C compiler over the headers of tree; uapi, if not empty, comes before the
// system's own user-space headers.
func gcc(tree, uapi string, args ...string) ([]byte, error) {
	if _, err := os.Stat("/usr/include/" + uapiHeader); uapi == "" && err != nil {
		return nil, fmt.Errorf("%w\nnext: apt-get install linux-libc-dev", err)
	}
	stubs, err := stubHeaders(tree)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(stubs)
	// -w: the prototypes in the headers name kernel types that nothing here declares.
	all := []string{"-w", "-I" + shimDir, "-I" + filepath.Join(tree, driverDir), "-idirafter", stubs}
	if uapi != "" {
		all = append(all, "-I"+uapi)
	}
	cmd := exec.Command("gcc", append(all, args...)...)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("compile the C headers: %w\nnext: apt-get install gcc libc6-dev", err)
	}
	if err != nil {
		return nil, fmt.Errorf("gcc %s: %w\n%s", strings.Join(cmd.Args[1:], " "), err, out)
	}
	return out, nil
}

// include is a line of a header that names another header.
var include = regexp.MustCompile(`(?m)^#include <([a-z0-9_/-]+\.h)>$`)

// stubHeaders makes a directory with an empty file for each header that the driver's include: the compiler takes one only if
// there is no other. The driver's list changes from one release of the kernel to the next.
func stubHeaders(tree string) (dir string, err error) {
	headers, err := filepath.Glob(filepath.Join(tree, driverDir, "*.h"))
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "pvrdma-stubs-"); err != nil {
		return "", err
	}
	for _, h := range headers {
		text, err := os.ReadFile(h)
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
		for _, m := range include.FindAllSubmatch(text, -1) {
			stub := filepath.Join(dir, string(m[1]))
			err := errors.Join(os.MkdirAll(filepath.Dir(stub), 0o700), os.WriteFile(stub, nil, 0o600))
			if err != nil {
				return "", errors.Join(err, os.RemoveAll(dir))
			}
		}
	}
	return dir, nil
}

// compileLayout compiles the headers with the extra arguments and reads the layout from
// the object's debug information.
func compileLayout(dir, tree, uapi string, extra ...string) (*cLayout, error) {
	obj := filepath.Join(dir, "abi.o")
	args := append([]string{"-g", "-c", "-fno-eliminate-unused-debug-types", "-o", obj}, extra...)
	if _, err := gcc(tree, uapi, append(args, "testdata/abi.c")...); err != nil {
		return nil, err
	}
	l, err := readLayout(obj)
	if err != nil {
		return nil, err
	}
	l.Macros, err = readMacros(dir, tree, uapi)
	return l, err
}

// hostLayout is the layout that the machine's own compiler gives the headers.
var hostLayout = sync.OnceValues(func() (*cLayout, error) {
	tree, err := linuxsource.Tree()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pvrdma-abi-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return compileLayout(dir, tree, "")
})

// reportLayout lets the first test that needs the layout say why there is none.
var reportLayout sync.Once

func mustLayout(t *testing.T) *cLayout {
	t.Helper()
	l, err := hostLayout()
	if err != nil {
		reportLayout.Do(func() { t.Error(err) })
		t.Fatal("no layout of the C headers; the first test that failed says why")
	}
	return l
}

// SPDX-License-Identifier: Apache-2.0

// Package linuxsource finds the parts of the Linux kernel's source that tests compare this project with: the driver
// vmw_pvrdma with its device headers, and the state table of queue pairs. Debian's package is downloaded on first use and
// kept outside the checkout.
//
// It is for tests. It may not bring the kernel's text into this repository, nor into anything that is built from it.
package linuxsource

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Env names the environment variable with a Linux source tree to use instead of Debian's.
const Env = "PVRDMAD_LINUX_SOURCE"

//go:embed fetch.sh
var fetch string

// wanted are files without which a directory is not what tests need.
var wanted = []string{
	"drivers/infiniband/hw/vmw_pvrdma/pvrdma_dev_api.h",
	"drivers/infiniband/core/verbs.c",
	"include/rdma/ib_verbs.h",
	"include/uapi/rdma/ib_user_ioctl_verbs.h",
}

// once is Tree's result for this process.
var once = sync.OnceValues(func() (string, error) { return find(os.Getenv(Env)) })

// Tree returns the directory with the source, which has the layout of the kernel's tree.
func Tree() (string, error) { return once() }

// find returns tree if it is not empty, else what fetch.sh makes, after a look at what is in it.
func find(tree string) (string, error) {
	if tree == "" {
		var stderr bytes.Buffer
		cmd := exec.Command("sh", "-s")
		cmd.Stdin, cmd.Stderr = strings.NewReader(fetch), &stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("fetch the Linux source: %w\n%snext: run internal/linuxsource/fetch.sh as root, or set %s",
				err, stderr.String(), Env)
		}
		tree = strings.TrimSpace(string(out))
	}
	for _, f := range wanted {
		if _, err := os.Stat(filepath.Join(tree, f)); err != nil {
			return "", fmt.Errorf("the Linux source is incomplete: %w\nnext: point %s at a Linux source tree, or unset it", err, Env)
		}
	}
	return tree, nil
}

// SPDX-License-Identifier: Apache-2.0

// Command agent is what a guest of the VM lane runs: /init of the initramfs, process 1 of the real root, and the
// agent that runs the harness's scripts. It brings up as little as a test needs, to be ready in a second under
// emulation. It may not load vmw_pvrdma unless the kernel command line asks: when that happens is a test's choice.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The one binary plays three roles in a row; its path tells which.
const (
	initPath  = "/init"                         // in the initramfs: reach the root file system
	rootPath  = "/usr/local/sbin/pvrdmad-guest" // in the root, as process 1: set up, start the agent, reap
	agentRole = "agent"                         // its argument as the agent
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == agentRole:
		err = serve()
	case os.Args[0] == rootPath:
		err = processOne()
	default:
		err = reachRoot()
	}
	fatal(err)
}

// fatal tells the serial console, which the harness keeps, and ends the guest: nothing works without this process.
func fatal(err error) {
	if console, openErr := os.OpenFile("/dev/console", os.O_WRONLY, 0); openErr == nil {
		_, _ = fmt.Fprintf(console, "pvrdmad-guest: %v\n", err)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	os.Exit(1)
}

// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"

	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// Reasons why a guest may not have an address.
const (
	// gidInUse: another guest has bound it.
	gidInUse = "in_use"
	// gidNotListed: it is not in the guest's gids.
	gidNotListed = "not_listed"
)

// gidRefusals are all reasons.
func gidRefusals() []string { return []string{gidInUse, gidNotListed} }

// gidRefusal returns why a guest may not have the address that it wanted to bind, "" if it is not that.
func gidRefusal(e pvrdma.CommandDone) string {
	switch {
	case e.Cmd != abi.CmdCreateBind:
		return ""
	case errors.Is(e.Err, unix.EADDRINUSE):
		return gidInUse
	case errors.Is(e.Err, unix.EPERM):
		return gidNotListed
	}
	return ""
}

// gidNext is what to do about a refused address.
func gidNext(refusal string) string {
	if refusal == gidInUse {
		return "give the vmxnet3 of each virtual machine a mac= of its own, as pvrdmad qemu-args prints it, and an IP address of its own"
	}
	return "add the address to gids in the guest's file and restart the daemon, or take it from the guest's vmxnet3"
}

// stateNext is what to do about an error state.
func stateNext(s pvrdma.ErrorState) string {
	switch s {
	case pvrdma.ErrorAlreadyActive:
		return "reload vmw_pvrdma in the guest or reboot it: the device does not go along when a virtual machine is migrated or goes back to a snapshot"
	case pvrdma.ErrorNotEnabled:
		return "if the virtual machine is not paused, it was migrated or restored from a snapshot: reboot the guest, the device does not go along"
	}
	return "reload vmw_pvrdma in the guest or reboot it"
}

// resetNext is what to do about a reset that the guest's driver did not ask for, "" if it starts anew by itself.
func resetNext(c pvrdma.ResetCause) string {
	switch c {
	case pvrdma.ResetByFault, pvrdma.ResetByMemoryLoss:
		return stateNext(pvrdma.ErrorFault)
	}
	return ""
}

// viommuNext is what to do about a virtual IOMMU.
const viommuNext = "each page is a mapping of its own, 65535 at most: leave the virtual IOMMU out, or boot the guest's kernel with iommu=pt"

// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/spf13/cobra"

// newRoot returns the tree of commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "pvrdmad",
		Short: "Give virtual machines a paravirtual RDMA device",
		Long: "pvrdmad gives virtual machines a device that is compatible with VMware's paravirtual RDMA adapter,\n" +
			"served over vfio-user to QEMU 10.1 and newer. Guests need their stock driver, vmw_pvrdma.",
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.AddCommand(newServe(), newQEMUArgs(), newDoctor(), newCheckConfig(), newVersion())
	return root
}

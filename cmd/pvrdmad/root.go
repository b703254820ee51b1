// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is how wide help is, in columns: a terminal's.
const helpWidth = 80

// newRoot returns the tree of commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "pvrdmad",
		Short: "Give virtual machines a paravirtual RDMA device",
		Long: "pvrdmad gives virtual machines a device that is compatible with VMware's\n" +
			"paravirtual RDMA adapter, served over vfio-user to QEMU 10.1 and newer. Guests\n" +
			"need their stock driver, vmw_pvrdma.",
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", helpWidth)))
	root.AddCommand(newServe(), newQEMUArgs(), newDoctor(), newCheckConfig(), newVersion())
	return root
}

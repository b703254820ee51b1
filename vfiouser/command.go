// SPDX-License-Identifier: Apache-2.0

package vfiouser

import "fmt"

// Command is a message's command: VFIO_USER_* of the vfio-user document.
type Command uint16

// The commands of the vfio-user document, section "Commands".
const (
	CommandVersion              Command = 1
	CommandDMAMap               Command = 2
	CommandDMAUnmap             Command = 3
	CommandDeviceGetInfo        Command = 4
	CommandDeviceGetRegionInfo  Command = 5
	CommandDeviceGetRegionIOFDs Command = 6
	CommandDeviceGetIRQInfo     Command = 7
	CommandDeviceSetIRQs        Command = 8
	CommandRegionRead           Command = 9
	CommandRegionWrite          Command = 10
	CommandDMARead              Command = 11
	CommandDMAWrite             Command = 12
	CommandDeviceReset          Command = 13
	CommandDirtyPages           Command = 14 // of older documents
	CommandRegionWriteMulti     Command = 15
	CommandDeviceFeature        Command = 16
	CommandMigDataRead          Command = 17
	CommandMigDataWrite         Command = 18

	numCommands = 19
)

// String returns the command's name without its prefix, for logs and metric labels; what is not a command of the
// document is "unknown", so that a client cannot invent labels.
func (c Command) String() string {
	if c == 0 || c >= numCommands {
		return "unknown"
	}
	return table[c].name
}

// String returns the interrupt's name.
func (i IRQIndex) String() string {
	names := [NumIRQs]string{"INTx", "MSI", "MSI-X", "ERR", "REQ"}
	if i >= NumIRQs {
		return fmt.Sprintf("IRQ index %d", uint32(i))
	}
	return names[i]
}

// String returns the region's name.
func (r RegionIndex) String() string {
	names := [NumRegions]string{"BAR0", "BAR1", "BAR2", "BAR3", "BAR4", "BAR5", "ROM", "config space", "VGA"}
	if r >= NumRegions {
		return fmt.Sprintf("region %d", uint32(r))
	}
	return names[r]
}

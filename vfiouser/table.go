// SPDX-License-Identifier: Apache-2.0

package vfiouser

import "golang.org/x/sys/unix"

// anyBody stands for a payload whose length the handler checks.
const anyBody = -1

// entry says how a command is served, or why it is not.
type entry struct {
	name string
	// body is the length of the payload, fds the most file descriptors.
	body, fds int
	// serve is nil for a command that is not served.
	serve func(*Session, *message) (answer, error)
	// fault and errno are what a command that is not served is refused with.
	fault Fault
	errno unix.Errno
}

// table is what becomes of every command of the vfio-user document, section "Commands". The package documentation says
// the same in words, and a test compares the two.
var table = [numCommands]entry{
	CommandVersion:              {name: "VERSION", body: anyBody, serve: (*Session).version},
	CommandDMAMap:               {name: "DMA_MAP", body: dmaMapSize, fds: 1, serve: (*Session).dmaMap},
	CommandDMAUnmap:             {name: "DMA_UNMAP", body: dmaUnmapSize, serve: (*Session).dmaUnmap},
	CommandDeviceGetInfo:        {name: "DEVICE_GET_INFO", body: deviceInfoSize, serve: (*Session).deviceInfo},
	CommandDeviceGetRegionInfo:  {name: "DEVICE_GET_REGION_INFO", body: regionInfoSize, serve: (*Session).regionInfo},
	CommandDeviceGetRegionIOFDs: {name: "DEVICE_GET_REGION_IO_FDS", fault: FaultAbsent, errno: unix.EOPNOTSUPP},
	CommandDeviceGetIRQInfo:     {name: "DEVICE_GET_IRQ_INFO", body: irqInfoSize, serve: (*Session).irqInfo},
	CommandDeviceSetIRQs:        {name: "DEVICE_SET_IRQS", body: anyBody, fds: MaxMessageFDs, serve: (*Session).setIRQs},
	CommandRegionRead:           {name: "REGION_READ", body: regionAccessSize, serve: (*Session).regionRead},
	CommandRegionWrite:          {name: "REGION_WRITE", body: anyBody, serve: (*Session).regionWrite},
	CommandDMARead:              {name: "DMA_READ", fault: FaultDirection, errno: unix.EINVAL},
	CommandDMAWrite:             {name: "DMA_WRITE", fault: FaultDirection, errno: unix.EINVAL},
	CommandDeviceReset:          {name: "DEVICE_RESET", serve: (*Session).reset},
	CommandDirtyPages:           {name: "DIRTY_PAGES", fault: FaultAbsent, errno: unix.EOPNOTSUPP},
	CommandRegionWriteMulti:     {name: "REGION_WRITE_MULTI", body: anyBody, serve: (*Session).regionWriteMulti},
	// ENOTTY is how linux/vfio.h has an unknown feature answered, so probing for one is told no.
	CommandDeviceFeature: {name: "DEVICE_FEATURE", fault: FaultAbsent, errno: unix.ENOTTY},
	CommandMigDataRead:   {name: "MIG_DATA_READ", fault: FaultAbsent, errno: unix.EOPNOTSUPP},
	CommandMigDataWrite:  {name: "MIG_DATA_WRITE", fault: FaultAbsent, errno: unix.EOPNOTSUPP},
}

// entryOf returns a command's entry, or a violation if it is not served.
func entryOf(c Command) (*entry, error) {
	if c == 0 || c >= numCommands {
		return nil, refuse(FaultCommand, unix.ENOSYS, "command %d", uint16(c))
	}
	e := &table[c]
	if e.serve == nil {
		return nil, refuse(e.fault, e.errno, "%s is not served", c)
	}
	return e, nil
}

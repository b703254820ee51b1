// SPDX-License-Identifier: Apache-2.0

package vfiouser

// Command is a message's command: VFIO_USER_* of the vfio-user document.
type Command uint16

// Fault is what was wrong with a message: a closed list, fit for a metric's label.
type Fault uint8

// FaultDevice: the message was well-formed; the Device refused it.
const FaultDevice Fault = 0

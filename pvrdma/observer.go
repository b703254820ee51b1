// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// Observer learns what happens to devices. Every event is worth one counter and one rate-limited log line. Observe
// is called on the guest's goroutines and on its worker: it must not block, and must be safe for concurrent use.
type Observer interface {
	Observe(e Event)
}

// Event is one of the event types of this file.
type Event interface {
	// GuestName is the guest whom the event concerns.
	GuestName() string
}

// Guest is the part that all events share.
type Guest struct{ Name string }

// GuestName implements Event.
func (g Guest) GuestName() string { return g.Name }

// CommandDone says that a command of the guest was executed.
type CommandDone struct {
	Guest
	Cmd abi.Cmd
	// Err is nil or wraps the errno and names the object and the cause.
	Err      error
	Duration time.Duration
}

// Activated says that the guest's driver switched the device on.
type Activated struct {
	Guest
	// DriverVersion is what the driver offered, Version what driver and device have in common.
	DriverVersion, Version uint32
	// VIOMMU says that a virtual IOMMU translates the guest's addresses.
	VIOMMU bool
}

// WasReset says that the device went back to its initial state.
type WasReset struct {
	Guest
	Cause ResetCause
	Err   error
}

// ResetCause is why a device was reset.
type ResetCause uint8

// Reset causes.
const (
	ResetByDriver ResetCause = iota // CTL register
	ResetByVMM                      // DEVICE_RESET of the virtual machine
	ResetByProbe                    // a driver loaded the device anew without a reset
	ResetByDisconnect
	ResetByFault      // the guest's memory failed, or our handling of it did
	ResetByMemoryLoss // what the driver shares with the device since its probe was unmapped
	ResetByBusMaster  // the guest has switched bus mastering off
)

var resetCauseNames = [...]string{"driver", "vmm", "probe", "disconnect", "fault", "memory_lost", "bus_master_off"}

// String returns the cause as the metric label has it.
func (c ResetCause) String() string {
	if int(c) < len(resetCauseNames) {
		return resetCauseNames[c]
	}
	return "unknown"
}

// ErrorStateChanged says that the device serves its guest no more until the guest's driver starts anew, or that it can
// serve it again.
type ErrorStateChanged struct {
	Guest
	State ErrorState
	// Err says why, nil if it was reported with a WasReset.
	Err error
}

// ErrorState is what keeps a device from serving its guest. Until it is over commands fail and doorbells are ignored. It
// ends when a driver loads the device or resets it, or when the machine is reset.
type ErrorState uint8

// Error states.
const (
	NoError ErrorState = iota
	// ErrorFault: the guest's memory failed, or our handling of the guest did.
	ErrorFault
	// ErrorMemoryLost: the shared region, a slot or an event ring of the active device was unmapped.
	ErrorMemoryLost
	// ErrorBusMasterOff: bus mastering was switched off under the active device.
	ErrorBusMasterOff
	// ErrorAlreadyActive: a driver uses a device that nobody has probed since the machine attached or was reset, as a
	// driver does whose machine was migrated here or went back to a snapshot.
	ErrorAlreadyActive
	// ErrorNotEnabled: nobody has enabled the function since the machine attached or was reset, and firmware would have.
	// It ends when somebody does.
	ErrorNotEnabled
)

var errorStateNames = [...]string{
	"none", "fault", "memory_lost", "bus_master_off", "already_active", "not_enabled",
}

// String returns the state as the metric label has it.
func (s ErrorState) String() string {
	if int(s) < len(errorStateNames) {
		return errorStateNames[s]
	}
	return "unknown"
}

// QPStateChanged says that a queue pair moved to another state.
type QPStateChanged struct {
	Guest
	Handle, QPN uint32
	Type        hostverbs.QPType
	From, To    hostverbs.QPState
	// DestQPN and DGID name the peer once the QP is connected (RTR and later).
	DestQPN uint32
	DGID    hostverbs.GID
}

// AsyncEventSent says that an asynchronous event was reported to the guest, or lost because its ring was full.
type AsyncEventSent struct {
	Guest
	Type abi.EventType
	Info uint32
	Lost bool
}

// GuestError says that the guest broke a rule of the device.
type GuestError struct {
	Guest
	Reason GuestErrorReason
	Err    error
}

// GuestErrorReason is a closed list: it is a metric label.
type GuestErrorReason uint8

// Reasons of GuestError.
const (
	BadRegister GuestErrorReason = iota
	BadState                     // a command, doorbell or register write in a state that does not allow it
	BadDSR
	BadDoorbell // an object that is not there or is not the context's
	BadRing     // an index that is not valid
	BadWQE
	CQOverflow
	BadMemory
)

var guestErrorReasonNames = [...]string{
	"bad_register", "bad_state", "bad_dsr", "bad_doorbell", "bad_ring", "bad_wqe", "cq_overflow", "bad_memory",
}

// String returns the reason as the metric label has it.
func (r GuestErrorReason) String() string {
	if int(r) < len(guestErrorReasonNames) {
		return guestErrorReasonNames[r]
	}
	return "unknown"
}

// Counters are a guest's data path counters since its device was made.
type Counters struct {
	SendWQEs, RecvWQEs uint64
	CQEs, CQEErrors    uint64
	Doorbells          uint64
	Notifications      uint64
	// WindowsDenied are memory regions that were to be contiguous in this process and are not, because the budget of
	// windows is used up or the kernel refused. They work, more slowly.
	WindowsDenied uint64
}

// Objects are how many objects a device holds at the moment.
type Objects struct {
	Contexts, PDs, MRs, CQs, QPs, SRQs uint32
}

// Add adds the counters of another device of the same guest.
func (c *Counters) Add(o Counters) {
	c.SendWQEs += o.SendWQEs
	c.RecvWQEs += o.RecvWQEs
	c.CQEs += o.CQEs
	c.CQEErrors += o.CQEErrors
	c.Doorbells += o.Doorbells
	c.Notifications += o.Notifications
	c.WindowsDenied += o.WindowsDenied
}

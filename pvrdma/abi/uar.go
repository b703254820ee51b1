// SPDX-License-Identifier: Apache-2.0

package abi

// A UAR page of BAR 2 (vmw_pvrdma-abi.h): three 32-bit doorbells by offset in bytes. Page
// 0 is the guest kernel's, each user context has one of its own.
const (
	UARQPOffset  = 0
	UARCQOffset  = 4
	UARSRQOffset = 8
)

// A doorbell's value: an object handle and one command bit. UARCQArm and UARCQArmSol
// exclude each other. Linux puts the handle in unmasked.
const (
	UARHandleMask uint32 = 0x00ffffff

	UARQPSend uint32 = 1 << 30 // the send queue's producer index moved
	UARQPRecv uint32 = 1 << 31 // the receive queue's producer index moved

	UARCQArmSol uint32 = 1 << 29 // notify at the next solicited completion
	UARCQArm    uint32 = 1 << 30 // notify at the next completion
	UARCQPoll   uint32 = 1 << 31 // a poll found the CQ empty

	UARSRQRecv uint32 = 1 << 30 // the SRQ's producer index moved
)

// UARPageSize is the size of a UAR page in bytes.
const UARPageSize = PageSize

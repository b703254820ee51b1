// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// headerSize is the length of every message's header, section "Header" of the vfio-user document.
const headerSize = 16

// Flags of a header, same section.
const (
	headerType    = 0xf // the type bits
	typeCommand   = 0x0
	typeReply     = 0x1
	headerNoReply = 1 << 4
	headerError   = 1 << 5
)

// Payload sizes of the commands, without the header: the sections of the vfio-user document.
const (
	versionSize      = 4 // and the version data
	dmaMapSize       = 32
	dmaUnmapSize     = 24
	deviceInfoSize   = 16
	regionInfoSize   = 32
	irqInfoSize      = 16
	irqSetSize       = 20 // and booleans
	regionAccessSize = 16 // and data
	multiHeaderSize  = 8
	multiWriteSize   = 24
)

// header is a message's header.
type header struct {
	id      uint16
	command Command
	size    uint32 // of the whole message
	flags   uint32
	errno   uint32
}

// parseHeader reads a header; all fields are in the host's byte order.
func parseHeader(p []byte) header {
	return header{
		id:      binary.NativeEndian.Uint16(p[0:]),
		command: Command(binary.NativeEndian.Uint16(p[2:])),
		size:    binary.NativeEndian.Uint32(p[4:]),
		flags:   binary.NativeEndian.Uint32(p[8:]),
		errno:   binary.NativeEndian.Uint32(p[12:]),
	}
}

// put writes a header.
func (h header) put(p []byte) {
	binary.NativeEndian.PutUint16(p[0:], h.id)
	binary.NativeEndian.PutUint16(p[2:], uint16(h.command))
	binary.NativeEndian.PutUint32(p[4:], h.size)
	binary.NativeEndian.PutUint32(p[8:], h.flags)
	binary.NativeEndian.PutUint32(p[12:], h.errno)
}

// wantsReply says whether the client waits for an answer.
func (h header) wantsReply() bool { return h.flags&headerNoReply == 0 }

// checkFraming returns a violation if what follows the header cannot be told apart from the next message.
func (h header) checkFraming() error {
	switch {
	case h.size < headerSize:
		return refuse(FaultSize, unix.EINVAL, "message of %d bytes, less than its header", h.size)
	case h.size > MaxFrame:
		return refuse(FaultTooLong, unix.EMSGSIZE, "message of %d bytes, more than %d", h.size, MaxFrame)
	case h.flags&headerType == typeReply:
		return refuse(FaultReply, unix.EPROTO, "reply to %s, which was never sent", h.command)
	case h.flags&headerType != typeCommand:
		return refuse(FaultType, unix.EPROTO, "message of type %d", h.flags&headerType)
	}
	return nil
}

// checkFlags returns a violation if a command has flags that only replies have, or that do not exist.
func (h header) checkFlags() error {
	if bad := h.flags &^ (headerType | headerNoReply); bad != 0 {
		return refuse(FaultFlags, unix.EINVAL, "%s with header flags %#x", h.command, bad)
	}
	return nil
}

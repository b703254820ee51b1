// SPDX-License-Identifier: Apache-2.0

package vfiouser

// Session is one client's connection.
type Session struct{ peer Peer }

// Peer returns who the client is and what it can do.
func (s *Session) Peer() Peer { return s.peer }

// Trigger raises an interrupt. If the client has assigned an eventfd to that vector and has not masked it, the
// eventfd is written; otherwise the interrupt is latched, and delivered once when an eventfd is assigned or the
// vector unmasked. It may be called from any goroutine, from Open on, also after Close; it does not allocate
// and does not wait for the client. A vector that the device does not have is ignored.
func (s *Session) Trigger(index IRQIndex, vector uint32) { panic("not written yet") }

// Peer is the process at the other end of a session.
type Peer struct {
	// PID, UID and GID are the client's when it connected: SO_PEERCRED, unix(7).
	PID      int32
	UID, GID uint32
	// Minor is the protocol version 0.Minor that the client proposed.
	Minor uint16
	// Capabilities are what it offered in its VERSION; all zero before that.
	Capabilities Capabilities
}

// Capabilities are a client's, from its VERSION message. Defaults of the vfio-user document stand where the
// client named none.
type Capabilities struct {
	MaxMsgFDs       uint32
	MaxDataXferSize uint64
	MaxDMAMaps      uint64
	PgSizes         uint64
	// TwinSocket: it offers a second socket for requests of the server. It is never taken up.
	TwinSocket bool
	// WriteMultiple: it may send REGION_WRITE_MULTI and posts register writes. QEMU does.
	WriteMultiple bool
}

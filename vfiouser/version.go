// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"golang.org/x/sys/unix"
)

// maxVersionData is the most bytes of a VERSION's JSON. QEMU sends about 200.
const maxVersionData = 4096

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
	MaxMsgFDs       uint64
	MaxDataXferSize uint64
	MaxDMAMaps      uint64
	PgSizes         uint64
	// TwinSocket: it offers a second socket for requests of the server. It is never taken up.
	TwinSocket bool
	// WriteMultiple: it may send REGION_WRITE_MULTI, and posts register writes. QEMU does.
	WriteMultiple bool
}

// versionData is the JSON of a VERSION message.
type versionData struct {
	Capabilities struct {
		MaxMsgFDs       uint64 `json:"max_msg_fds"`
		MaxDataXferSize uint64 `json:"max_data_xfer_size"`
		MaxDMAMaps      uint64 `json:"max_dma_maps"`
		PgSizes         uint64 `json:"pgsizes"`
		TwinSocket      struct {
			Supported bool `json:"supported"`
		} `json:"twin_socket"`
		WriteMultiple bool `json:"write_multiple"`
	} `json:"capabilities"`
}

// parseVersion reads a client's VERSION into its peer.
func parseVersion(body []byte, p *Peer) error {
	if len(body) < versionSize || len(body) > versionSize+maxVersionData {
		return refuse(FaultVersion, unix.EINVAL, "VERSION with %d bytes of payload", len(body))
	}
	if major := binary.NativeEndian.Uint16(body); major != 0 {
		return refuse(FaultVersion, unix.EINVAL, "protocol version %d, only 0 is spoken here", major)
	}
	var v versionData
	c := &v.Capabilities
	c.MaxMsgFDs, c.MaxDataXferSize, c.MaxDMAMaps, c.PgSizes = 1, 1<<20, 65535, 4096
	if data := body[versionSize:]; len(data) > 0 {
		// The sender's string ends at the first NUL, whatever a client puts behind it.
		text, _, ended := bytes.Cut(data, []byte{0})
		if !ended {
			return refuse(FaultVersion, unix.EINVAL, "VERSION whose JSON does not end in NUL")
		}
		if err := json.Unmarshal(text, &v); err != nil {
			return refuse(FaultVersion, unix.EINVAL, "VERSION whose JSON does not parse (%v)", err)
		}
	}
	if c.PgSizes&PageSize == 0 {
		return refuse(FaultVersion, unix.EINVAL, "client without pages of %d bytes (pgsizes %#x)", PageSize, c.PgSizes)
	}
	p.Minor = binary.NativeEndian.Uint16(body[2:])
	p.Capabilities = Capabilities{
		MaxMsgFDs: c.MaxMsgFDs, MaxDataXferSize: c.MaxDataXferSize, MaxDMAMaps: c.MaxDMAMaps, PgSizes: c.PgSizes,
		TwinSocket: c.TwinSocket.Supported, WriteMultiple: c.WriteMultiple,
	}
	return nil
}

// appendVersion appends the payload of the VERSION reply. request is the length of the client's payload: QEMU
// receives the reply into the same buffer, so it may not be longer. What a client without room is not told is
// what the document has as default; one that sent no JSON at all has no such buffer and is told everything.
func appendVersion(out []byte, p *Peer, request int) []byte {
	// 0.0 is what QEMU speaks; the reply may not name a later one than the request.
	out = binary.NativeEndian.AppendUint16(out, 0)
	out = binary.NativeEndian.AppendUint16(out, 0)
	room := request - versionSize
	text := versionText(p, true)
	if room > 0 && len(text)+1 > room {
		text = versionText(p, false)
	}
	if room > 0 && len(text)+1 > room {
		return out
	}
	return append(append(out, text...), 0)
}

// versionText returns the server's capabilities; all of them, or those that differ from the defaults.
func versionText(p *Peer, all bool) string {
	text := fmt.Sprintf(`"max_msg_fds":%d,"max_data_xfer_size":%d`, MaxMessageFDs, MaxTransfer)
	if all {
		text += fmt.Sprintf(`,"max_dma_maps":%d,"pgsizes":%d`, MaxDMAMaps, PageSize)
	}
	if p.Capabilities.WriteMultiple {
		// A feature is named only if the client has proposed it.
		text += `,"write_multiple":true`
	}
	return `{"capabilities":{` + text + `}}`
}

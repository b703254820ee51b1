// SPDX-License-Identifier: Apache-2.0

package gsi

import "encoding/binary"

const (
	// QPN is the number of every guest's GSI queue pair.
	QPN = 1
	// QKey is the Q_Key that they all have, IB_QP1_QKEY (include/rdma/ib_mad.h).
	QKey = 0x80010000
	// MADBytes is the length of a management datagram, IB_MGMT_MAD_SIZE.
	MADBytes = 256
)

// Offsets of struct ib_mad_hdr (include/rdma/ib_mad.h).
const (
	offBaseVersion = 0
	offMgmtClass   = 1
	offMethod      = 3
	offAttrID      = 16
)

const (
	baseVersion = 1
	// classSubnLIDRouted and classSubnDirectedRoute are the two classes of subnet management, which belong to QP 0.
	classSubnLIDRouted     = 0x01
	classSubnDirectedRoute = 0x81
	// classCM is connection management. It sends, and asks for nothing but the class port info.
	classCM           = 0x07
	methodSend        = 0x03
	attrClassPortInfo = 0x0001
)

// Valid says whether bytes are a management datagram for QP 1. What is none a guest's kernel would refuse with a line in its
// log, or, since it takes for granted that each has MADBytes, read beyond what has arrived (drivers/infiniband/core/mad.c).
func Valid(mad []byte) bool {
	if len(mad) != MADBytes || mad[offBaseVersion] != baseVersion {
		return false
	}
	switch mad[offMgmtClass] {
	case classSubnLIDRouted, classSubnDirectedRoute:
		return false
	case classCM:
		return mad[offMethod] == methodSend || binary.BigEndian.Uint16(mad[offAttrID:]) == attrClassPortInfo
	}
	return true
}

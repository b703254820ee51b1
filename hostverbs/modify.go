// SPDX-License-Identifier: Apache-2.0

package hostverbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// psnMask and qpnMask are the 24 bits of a packet sequence number and of a queue pair number on the wire.
	psnMask uint32 = 0xffffff
	qpnMask uint32 = 0xffffff
	// maxTimerCode is the largest code of Timeout and MinRNRTimer, which have 5 bits.
	maxTimerCode uint8 = 31
	// maxRetryCount is the largest RetryCnt and RNRRetry, which have 3 bits.
	maxRetryCount uint8 = 7
	// pathMigrated is IB_MIG_MIGRATED, the only migration state of a port without alternate paths.
	pathMigrated uint8 = 0
)

// PortLimits is what CheckModify has to know about the port and the device behind it.
type PortLimits struct {
	// Ports is the number of ports; they count from 1.
	Ports uint8
	// ActiveMTU bounds PathMTU.
	ActiveMTU MTU
	// PKeys and GIDs are the lengths of the port's tables.
	PKeys uint16
	GIDs  int
	// MaxRdAtomic and MaxDestRdAtomic bound the attributes of the same names.
	MaxRdAtomic, MaxDestRdAtomic uint32
	// GRHRequired says that an address needs a global route, as every RoCE port does. It also means that there are
	// no alternate paths.
	GRHRequired bool
	// RateLimit says that QPRateLimit is within the engine's power.
	RateLimit bool
}

// CheckModify decides whether ibv_modify_qp(3) may apply the attributes that mask selects to a queue pair of the type
// typ whose true state is cur. It returns the state to move to, which is cur if mask has no QPStateMask. It changes
// nothing but brings RQPSN and SQPSN to 24 bits with MaskPSN when the caller applies them.
//
// The first failure decides: EOPNOTSUPP for bits that no device here knows; EINVAL for a mask that the state table
// refuses; EINVAL for a value out of its range. Attributes that mask does not select are not looked at.
func CheckModify(typ QPType, cur QPState, attr *QPAttr, mask AttrMask, port *PortLimits) (QPState, error) {
	known := QPAttrStandardBits
	if port.RateLimit {
		known |= QPRateLimit
	}
	if unknown := mask &^ known; unknown != 0 {
		return cur, fmt.Errorf("modify %s QP in %s: attribute mask %s: %w", typ, cur, unknown, unix.EOPNOTSUPP)
	}
	next := cur
	if mask&QPStateMask != 0 {
		next = attr.QPState
	}
	if err := checkMask(typ, cur, next, mask); err != nil {
		return cur, err
	}
	if err := checkValues(cur, attr, mask, port); err != nil {
		return cur, fmt.Errorf("modify %s QP from %s to %s: %w", typ, cur, next, err)
	}
	return next, nil
}

// MaskPSN returns the 24 bits of a packet sequence number that count. A larger one is not refused, see
// ib_modify_qp in drivers/infiniband/core/verbs.c.
func MaskPSN(psn uint32) uint32 {
	return psn & psnMask
}

// checkMask compares the mask with the state table.
func checkMask(typ QPType, cur, next QPState, mask AttrMask) error {
	c := lookup(typ, cur, next)
	if c.accepts(mask) {
		return nil
	}
	refused := func(format string, attrs ...any) error {
		return fmt.Errorf("modify %s QP from %s to %s: %s: %w", typ, cur, next, fmt.Sprintf(format, attrs...), unix.EINVAL)
	}
	if c == nowhere {
		return refused("no such transition")
	}
	if missing := c.need &^ mask; missing != 0 {
		return refused("attributes %s are missing", missing)
	}
	return refused("attributes %s are not allowed", mask&^c.allowed)
}

// checkValues looks at the values that mask selects.
func checkValues(cur QPState, attr *QPAttr, mask AttrMask, port *PortLimits) error {
	if mask&QPCurState != 0 && attr.CurQPState != cur {
		return refuse("cur_qp_state is not the state", attr.CurQPState)
	}
	if mask&QPPathMigState != 0 && attr.PathMigState != pathMigrated {
		return refuse("path_mig_state needs alternate paths", attr.PathMigState)
	}
	if err := checkPath(attr, mask, port); err != nil {
		return err
	}
	return checkTransport(attr, mask, port)
}

// checkPath looks at what says where packets go.
func checkPath(attr *QPAttr, mask AttrMask, port *PortLimits) error {
	if mask&QPPKeyIndex != 0 && attr.PKeyIndex >= port.PKeys {
		return refuse("pkey_index", attr.PKeyIndex)
	}
	if mask&QPPort != 0 && !port.valid(attr.PortNum) {
		return refuse("port_num", attr.PortNum)
	}
	if mask&QPAV != 0 {
		if err := port.checkAddress(&attr.AHAttr); err != nil {
			return fmt.Errorf("ah_attr: %w", err)
		}
	}
	if mask&QPAltPath != 0 {
		return port.checkAltPath(attr)
	}
	return nil
}

// checkTransport looks at what steers the protocol between two queue pairs.
func checkTransport(attr *QPAttr, mask AttrMask, port *PortLimits) error {
	switch {
	case mask&QPPathMTU != 0 && (attr.PathMTU.Bytes() == 0 || attr.PathMTU > port.ActiveMTU):
		return refuse("path_mtu", attr.PathMTU)
	case mask&QPTimeout != 0 && attr.Timeout > maxTimerCode:
		return refuse("timeout", attr.Timeout)
	case mask&QPRetryCnt != 0 && attr.RetryCnt > maxRetryCount:
		return refuse("retry_cnt", attr.RetryCnt)
	case mask&QPRNRRetry != 0 && attr.RNRRetry > maxRetryCount:
		return refuse("rnr_retry", attr.RNRRetry)
	case mask&QPMinRNRTimer != 0 && attr.MinRNRTimer > maxTimerCode:
		return refuse("min_rnr_timer", attr.MinRNRTimer)
	case mask&QPMaxQPRdAtomic != 0 && uint32(attr.MaxRdAtomic) > port.MaxRdAtomic:
		return refuse("max_rd_atomic", attr.MaxRdAtomic)
	case mask&QPMaxDestRdAtomic != 0 && uint32(attr.MaxDestRdAtomic) > port.MaxDestRdAtomic:
		return refuse("max_dest_rd_atomic", attr.MaxDestRdAtomic)
	case mask&QPDestQPN != 0 && attr.DestQPNum > qpnMask:
		return refuse("dest_qp_num", attr.DestQPNum)
	}
	return nil
}

// valid says whether num is one of the ports.
func (p *PortLimits) valid(num uint8) bool {
	return num >= 1 && num <= p.Ports
}

// checkAddress looks at an address vector of a connected queue pair.
func (p *PortLimits) checkAddress(ah *AHAttr) error {
	switch {
	case !p.valid(ah.PortNum):
		return refuse("port_num", ah.PortNum)
	case p.GRHRequired && !ah.GRH:
		return fmt.Errorf("no GRH, which the port requires: %w", unix.EINVAL)
	case ah.GRH && int(ah.SGIDIndex) >= p.GIDs:
		return refuse("sgid_index", ah.SGIDIndex)
	}
	return nil
}

// checkAltPath looks at an alternate path.
func (p *PortLimits) checkAltPath(attr *QPAttr) error {
	if p.GRHRequired {
		return fmt.Errorf("the port has no alternate paths: %w", unix.EINVAL)
	}
	switch {
	case attr.AltPKeyIndex >= p.PKeys:
		return refuse("alt_pkey_index", attr.AltPKeyIndex)
	case !p.valid(attr.AltPortNum):
		return refuse("alt_port_num", attr.AltPortNum)
	case attr.AltTimeout > maxTimerCode:
		return refuse("alt_timeout", attr.AltTimeout)
	}
	return p.checkAddress(&attr.AltAHAttr)
}

// refuse makes the error for a value out of range.
func refuse(what string, value any) error {
	return fmt.Errorf("%s %v: %w", what, value, unix.EINVAL)
}

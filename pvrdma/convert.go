// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// outOfRange stands for a 32-bit enumerator of the guest that does not fit the narrower one of verbs: no attribute check
// accepts it.
const outOfRange = 0xff

func narrow(v uint32) uint8 { return uint8(min(v, outOfRange)) }

// qpAttrFromGuest translates the attributes of a modify. What the mask does not select can be anything, and nobody looks
// at it.
func qpAttrFromGuest(a *abi.QPAttr) hostverbs.QPAttr {
	return hostverbs.QPAttr{
		QPState: hostverbs.QPState(narrow(uint32(a.QPState))), CurQPState: hostverbs.QPState(narrow(uint32(a.CurQPState))),
		PathMTU: hostverbs.MTU(narrow(uint32(a.PathMTU))), PathMigState: narrow(uint32(a.PathMigState)),
		QKey: a.QKey, RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPNum: a.DestQPNum,
		QPAccessFlags: hostverbs.AccessFlags(a.QPAccessFlags), Cap: qpCapFromGuest(&a.Cap),
		AHAttr: ahAttrFromGuest(&a.AHAttr), AltAHAttr: ahAttrFromGuest(&a.AltAHAttr),
		PKeyIndex: a.PKeyIndex, AltPKeyIndex: a.AltPKeyIndex, EnSQDAsyncNotify: a.EnSQDAsyncNotify != 0,
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer, PortNum: a.PortNum,
		Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry, AltPortNum: a.AltPortNum, AltTimeout: a.AltTimeout,
	}
}

// qpAttrToGuest translates the attributes of a query.
func qpAttrToGuest(a *hostverbs.QPAttr) abi.QPAttr {
	return abi.QPAttr{
		QPState: abi.QPState(a.QPState), CurQPState: abi.QPState(a.QPState), PathMTU: abi.MTU(a.PathMTU),
		PathMigState: abi.MigState(a.PathMigState), QKey: a.QKey, RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPNum: a.DestQPNum,
		QPAccessFlags: abi.AccessFlags(a.QPAccessFlags), Cap: qpCapToGuest(&a.Cap), AHAttr: ahAttrToGuest(&a.AHAttr),
		PKeyIndex: a.PKeyIndex, EnSQDAsyncNotify: flag(a.EnSQDAsyncNotify), SQDraining: flag(a.SQDraining),
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer, PortNum: a.PortNum,
		Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
	}
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func qpCapFromGuest(c *abi.QPCap) hostverbs.QPCap {
	return hostverbs.QPCap{
		MaxSendWR: c.MaxSendWR, MaxRecvWR: c.MaxRecvWR, MaxSendSGE: c.MaxSendSGE, MaxRecvSGE: c.MaxRecvSGE,
		MaxInlineData: c.MaxInlineData,
	}
}

func qpCapToGuest(c *hostverbs.QPCap) abi.QPCap {
	return abi.QPCap{
		MaxSendWR: c.MaxSendWR, MaxRecvWR: c.MaxRecvWR, MaxSendSGE: c.MaxSendSGE, MaxRecvSGE: c.MaxRecvSGE,
		MaxInlineData: c.MaxInlineData,
	}
}

func ahAttrFromGuest(a *abi.AHAttr) hostverbs.AHAttr {
	return hostverbs.AHAttr{
		DGID: hostverbs.GID(a.GRH.DGID), FlowLabel: a.GRH.FlowLabel, SGIDIndex: a.GRH.SGIDIndex,
		HopLimit: a.GRH.HopLimit, TrafficClass: a.GRH.TrafficClass, SL: a.SL, SrcPathBits: a.SrcPathBits,
		StaticRate: uint8(a.StaticRate), GRH: a.AHFlags&abi.AHFlagGRH != 0, PortNum: a.PortNum, DMAC: a.DMAC,
	}
}

func ahAttrToGuest(a *hostverbs.AHAttr) abi.AHAttr {
	x := abi.AHAttr{
		GRH: abi.GlobalRoute{
			DGID: abi.GID(a.DGID), FlowLabel: a.FlowLabel, SGIDIndex: a.SGIDIndex, HopLimit: a.HopLimit,
			TrafficClass: a.TrafficClass,
		},
		SL: a.SL, SrcPathBits: a.SrcPathBits, StaticRate: abi.Rate(a.StaticRate), PortNum: a.PortNum, DMAC: a.DMAC,
	}
	if a.GRH {
		x.AHFlags = abi.AHFlagGRH
	}
	return x
}

// sendFlags drops INLINE: user space passes it on although inline data is never offered, and lays out the request as if
// it was not there.
func sendFlags(f abi.SendFlags) hostverbs.SendFlags {
	var x hostverbs.SendFlags
	if f&abi.SendFence != 0 {
		x |= hostverbs.SendFence
	}
	if f&abi.SendSignaled != 0 {
		x |= hostverbs.SendSignaled
	}
	if f&abi.SendSolicited != 0 {
		x |= hostverbs.SendSolicited
	}
	return x
}

func wcOpcode(op hostverbs.WCOpcode) abi.WCOpcode {
	switch op {
	case hostverbs.WCOpRDMAWrite:
		return abi.WCRDMAWrite
	case hostverbs.WCOpRDMARead:
		return abi.WCRDMARead
	case hostverbs.WCOpCompSwap:
		return abi.WCCompSwap
	case hostverbs.WCOpFetchAdd:
		return abi.WCFetchAdd
	case hostverbs.WCOpLocalInv:
		return abi.WCLocalInv
	case hostverbs.WCOpRegMR:
		return abi.WCFastRegMR
	case hostverbs.WCOpRecv:
		return abi.WCRecv
	case hostverbs.WCOpRecvRDMAWithImm:
		return abi.WCRecvRDMAWithImm
	}
	return abi.WCSend
}

func networkType(n hostverbs.Network) abi.NetworkType {
	switch n {
	case hostverbs.NetworkIPv4:
		return abi.NetworkIPv4
	case hostverbs.NetworkIPv6:
		return abi.NetworkIPv6
	}
	return abi.NetworkRoCEv1
}

func asyncEvent(e hostverbs.EventType) (abi.EventType, bool) {
	switch e {
	case hostverbs.EventQPFatal:
		return abi.EventQPFatal, true
	case hostverbs.EventQPReqErr:
		return abi.EventQPReqErr, true
	case hostverbs.EventQPAccessErr:
		return abi.EventQPAccessErr, true
	case hostverbs.EventCommEst:
		return abi.EventCommEst, true
	case hostverbs.EventSQDrained:
		return abi.EventSQDrained, true
	case hostverbs.EventQPLastWQEReached:
		return abi.EventQPLastWQEReached, true
	case hostverbs.EventSRQLimitReached:
		return abi.EventSRQLimitReached, true
	}
	return 0, false
}

// SPDX-License-Identifier: Apache-2.0

package hostverbs

// QPType is enum ibv_qp_type with the values of the kernel's enum ib_qp_type (include/rdma/ib_verbs.h).
type QPType uint8

// Queue pair types.
const (
	QPTypeSMI       QPType = 0
	QPTypeGSI       QPType = 1
	QPTypeRC        QPType = 2
	QPTypeUC        QPType = 3
	QPTypeUD        QPType = 4
	QPTypeRawPacket QPType = 8
)

// QPState is enum ib_qp_state (include/rdma/ib_verbs.h).
type QPState uint8

// Queue pair states.
const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
)

// AttrMask is enum ib_qp_attr_mask (include/rdma/ib_verbs.h): which attributes a modify names.
type AttrMask uint32

// Attribute mask bits. The names carry the suffix Mask where an attribute of QPAttr has the plain name.
const (
	QPStateMask        AttrMask = 1 << 0
	QPCurState         AttrMask = 1 << 1
	QPEnSQDAsyncNotify AttrMask = 1 << 2
	QPAccessFlagsMask  AttrMask = 1 << 3
	QPPKeyIndex        AttrMask = 1 << 4
	QPPort             AttrMask = 1 << 5
	QPQKey             AttrMask = 1 << 6
	QPAV               AttrMask = 1 << 7
	QPPathMTU          AttrMask = 1 << 8
	QPTimeout          AttrMask = 1 << 9
	QPRetryCnt         AttrMask = 1 << 10
	QPRNRRetry         AttrMask = 1 << 11
	QPRQPSN            AttrMask = 1 << 12
	QPMaxQPRdAtomic    AttrMask = 1 << 13
	QPAltPath          AttrMask = 1 << 14
	QPMinRNRTimer      AttrMask = 1 << 15
	QPSQPSN            AttrMask = 1 << 16
	QPMaxDestRdAtomic  AttrMask = 1 << 17
	QPPathMigState     AttrMask = 1 << 18
	QPCapMask          AttrMask = 1 << 19
	QPDestQPN          AttrMask = 1 << 20
	QPRateLimit        AttrMask = 1 << 25
	QPAttrStandardBits AttrMask = 0x1fffff
)

// MTU is enum ib_mtu: a code, not bytes.
type MTU uint8

// Path MTU codes.
const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes returns the size that the code stands for, 0 if it is none.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// AccessFlags is enum ib_access_flags (include/rdma/ib_verbs.h).
type AccessFlags uint32

// Access flags that an engine acts on.
const (
	AccessLocalWrite   AccessFlags = 1 << 0
	AccessRemoteWrite  AccessFlags = 1 << 1
	AccessRemoteRead   AccessFlags = 1 << 2
	AccessRemoteAtomic AccessFlags = 1 << 3
	AccessMWBind       AccessFlags = 1 << 4
	AccessZeroBased    AccessFlags = 1 << 5
)

// QPCap is struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR, MaxRecvWR   uint32
	MaxSendSGE, MaxRecvSGE uint32
	MaxInlineData          uint32
}

// AHAttr is struct ibv_ah_attr with the fields that RoCE uses.
type AHAttr struct {
	DGID         GID
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	// GRH says that the address has a global route; RoCE needs one.
	GRH     bool
	PortNum uint8
	DMAC    [6]byte
}

// QPAttr is struct ibv_qp_attr. Units and ranges are those of ibv_modify_qp(3).
type QPAttr struct {
	QPState          QPState
	CurQPState       QPState
	PathMTU          MTU
	PathMigState     uint8
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPNum        uint32
	QPAccessFlags    AccessFlags
	Cap              QPCap
	AHAttr           AHAttr
	AltAHAttr        AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8
	PortNum          uint8
	Timeout          uint8
	RetryCnt         uint8
	RNRRetry         uint8
	AltPortNum       uint8
	AltTimeout       uint8
}

// DeviceAttr is what an engine can do, as struct ibv_device_attr. A zero limit means that the feature is absent.
type DeviceAttr struct {
	FWVer            uint64
	MaxMRSize        uint64
	VendorID         uint32
	HWVer            uint32
	MaxQP            uint32
	MaxQPWR          uint32
	MaxSGE           uint32
	MaxSGERd         uint32
	MaxCQ            uint32
	MaxCQE           uint32
	MaxMR            uint32
	MaxPD            uint32
	MaxAH            uint32
	MaxSRQ           uint32
	MaxSRQWR         uint32
	MaxSRQSGE        uint32
	MaxQPRdAtom      uint32
	MaxQPInitRdAtom  uint32
	MaxPKeys         uint16
	LocalCAAckDelay  uint8
	AtomicCmpSwap    bool
	AtomicFetchAdd   bool
	LocalInvalidate  bool
	RemoteInvalidate bool
	FastRegistration bool
	// MaxFastRegPageLen is the most pages of a region for fast registration.
	MaxFastRegPageLen uint32
}

// PortAttr is the state of a port, as struct ibv_port_attr.
type PortAttr struct {
	// Active says that the port's state is ACTIVE, else it is DOWN.
	Active      bool
	MaxMTU      MTU
	ActiveMTU   MTU
	MaxMsgSize  uint32
	ActiveWidth uint8
	ActiveSpeed uint8
}

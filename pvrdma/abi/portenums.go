// SPDX-License-Identifier: Apache-2.0

package abi

// LinkLayer is enum pvrdma_link_layer (pvrdma_verbs.h); no structure holds one.
type LinkLayer uint32

// The values of [LinkLayer].
const (
	LinkLayerUnspecified LinkLayer = 0
	LinkLayerInfiniBand  LinkLayer = 1
	LinkLayerEthernet    LinkLayer = 2
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (l LinkLayer) String() string {
	return enumString(uint32(l), []string{
		0: "UNSPECIFIED",
		1: "INFINIBAND",
		2: "ETHERNET",
	})
}

// MTU is enum pvrdma_mtu (pvrdma_verbs.h), the code of a path MTU.
type MTU uint32

// The values of [MTU].
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (m MTU) String() string {
	return enumString(uint32(m), []string{
		1: "256",
		2: "512",
		3: "1024",
		4: "2048",
		5: "4096",
	})
}

// PortState is enum pvrdma_port_state (pvrdma_verbs.h).
type PortState uint32

// The values of [PortState].
const (
	PortNop         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (p PortState) String() string {
	return enumString(uint32(p), []string{
		0: "NOP",
		1: "DOWN",
		2: "INIT",
		3: "ARMED",
		4: "ACTIVE",
		5: "ACTIVE_DEFER",
	})
}

// PortCapFlags is enum pvrdma_port_cap_flags (pvrdma_verbs.h), a set of bits.
type PortCapFlags uint32

// The values of [PortCapFlags].
const (
	PortCapSM                   PortCapFlags = 1 << 1
	PortCapNoticeSup            PortCapFlags = 1 << 2
	PortCapTrapSup              PortCapFlags = 1 << 3
	PortCapOptIpdSup            PortCapFlags = 1 << 4
	PortCapAutoMigrSup          PortCapFlags = 1 << 5
	PortCapSLMapSup             PortCapFlags = 1 << 6
	PortCapMKeyNVRAM            PortCapFlags = 1 << 7
	PortCapPKeyNVRAM            PortCapFlags = 1 << 8
	PortCapLEDInfoSup           PortCapFlags = 1 << 9
	PortCapSMDisabled           PortCapFlags = 1 << 10
	PortCapSysImageGUIDSup      PortCapFlags = 1 << 11
	PortCapPKeySwExtPortTrapSup PortCapFlags = 1 << 12
	PortCapExtendedSpeedsSup    PortCapFlags = 1 << 14
	PortCapCMSup                PortCapFlags = 1 << 16
	PortCapSNMPTunnelSup        PortCapFlags = 1 << 17
	PortCapReinitSup            PortCapFlags = 1 << 18
	PortCapDeviceMgmtSup        PortCapFlags = 1 << 19
	PortCapVendorClassSup       PortCapFlags = 1 << 20
	PortCapDRNoticeSup          PortCapFlags = 1 << 21
	PortCapMaskNoticeSup        PortCapFlags = 1 << 22
	PortCapBootMgmtSup          PortCapFlags = 1 << 23
	PortCapLinkLatencySup       PortCapFlags = 1 << 24
	PortCapClientRegSup         PortCapFlags = 1 << 25
	PortCapIPBasedGIDs          PortCapFlags = 1 << 26
	PortCapMax                  PortCapFlags = PortCapIPBasedGIDs
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (p PortCapFlags) String() string {
	return flagString(uint32(p), []string{
		1:  "SM",
		2:  "NOTICE_SUP",
		3:  "TRAP_SUP",
		4:  "OPT_IPD_SUP",
		5:  "AUTO_MIGR_SUP",
		6:  "SL_MAP_SUP",
		7:  "MKEY_NVRAM",
		8:  "PKEY_NVRAM",
		9:  "LED_INFO_SUP",
		10: "SM_DISABLED",
		11: "SYS_IMAGE_GUID_SUP",
		12: "PKEY_SW_EXT_PORT_TRAP_SUP",
		14: "EXTENDED_SPEEDS_SUP",
		16: "CM_SUP",
		17: "SNMP_TUNNEL_SUP",
		18: "REINIT_SUP",
		19: "DEVICE_MGMT_SUP",
		20: "VENDOR_CLASS_SUP",
		21: "DR_NOTICE_SUP",
		22: "CAP_MASK_NOTICE_SUP",
		23: "BOOT_MGMT_SUP",
		24: "LINK_LATENCY_SUP",
		25: "CLIENT_REG_SUP",
		26: "IP_BASED_GIDS",
	})
}

// PortWidth is enum pvrdma_port_width (pvrdma_verbs.h), lanes.
type PortWidth uint8

// The values of [PortWidth].
const (
	Width1X  PortWidth = 1
	Width4X  PortWidth = 2
	Width8X  PortWidth = 4
	Width12X PortWidth = 8
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (p PortWidth) String() string {
	switch p {
	case Width1X:
		return "1X"
	case Width4X:
		return "4X"
	case Width8X:
		return "8X"
	case Width12X:
		return "12X"
	}
	return hex(uint32(p))
}

// PortSpeed is enum pvrdma_port_speed (pvrdma_verbs.h), for each lane.
type PortSpeed uint8

// The values of [PortSpeed].
const (
	SpeedSDR   PortSpeed = 1
	SpeedDDR   PortSpeed = 2
	SpeedQDR   PortSpeed = 4
	SpeedFDR10 PortSpeed = 8
	SpeedFDR   PortSpeed = 16
	SpeedEDR   PortSpeed = 32
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (p PortSpeed) String() string {
	switch p {
	case SpeedSDR:
		return "SDR"
	case SpeedDDR:
		return "DDR"
	case SpeedQDR:
		return "QDR"
	case SpeedFDR10:
		return "FDR10"
	case SpeedFDR:
		return "FDR"
	case SpeedEDR:
		return "EDR"
	}
	return hex(uint32(p))
}

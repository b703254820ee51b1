// SPDX-License-Identifier: Apache-2.0

package abi

// AHFlags is enum pvrdma_ah_flags (pvrdma_verbs.h).
type AHFlags uint8

// The values of [AHFlags].
const (
	AHFlagGRH AHFlags = 1 << 0
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (a AHFlags) String() string {
	return flagString(uint32(a), []string{
		0: "GRH",
	})
}

// Rate is enum pvrdma_rate (pvrdma_verbs.h), the code of a static rate limit.
type Rate uint8

// The values of [Rate].
const (
	RatePortCurrent Rate = 0
	Rate2_5Gbps     Rate = 2
	Rate10Gbps      Rate = 3
	Rate30Gbps      Rate = 4
	Rate5Gbps       Rate = 5
	Rate20Gbps      Rate = 6
	Rate40Gbps      Rate = 7
	Rate60Gbps      Rate = 8
	Rate80Gbps      Rate = 9
	Rate120Gbps     Rate = 10
	Rate14Gbps      Rate = 11
	Rate56Gbps      Rate = 12
	Rate112Gbps     Rate = 13
	Rate168Gbps     Rate = 14
	Rate25Gbps      Rate = 15
	Rate100Gbps     Rate = 16
	Rate200Gbps     Rate = 17
	Rate300Gbps     Rate = 18
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (r Rate) String() string {
	return enumString(uint32(r), []string{
		0:  "PORT_CURRENT",
		2:  "2_5_GBPS",
		3:  "10_GBPS",
		4:  "30_GBPS",
		5:  "5_GBPS",
		6:  "20_GBPS",
		7:  "40_GBPS",
		8:  "60_GBPS",
		9:  "80_GBPS",
		10: "120_GBPS",
		11: "14_GBPS",
		12: "56_GBPS",
		13: "112_GBPS",
		14: "168_GBPS",
		15: "25_GBPS",
		16: "100_GBPS",
		17: "200_GBPS",
		18: "300_GBPS",
	})
}

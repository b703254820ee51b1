// SPDX-License-Identifier: Apache-2.0

package hostverbs

import (
	"fmt"
	"testing"
)

func TestWordsHaveTheKernelsNames(t *testing.T) {
	cases := []struct {
		word fmt.Stringer
		want string
	}{
		{QPTypeRC, "RC"},
		{QPTypeRawPacket, "RAW_PACKET"},
		{QPType(5), "QPType(5)"},
		{QPType(200), "QPType(200)"},
		{StateErr, "ERR"},
		{QPState(7), "QPState(7)"},
		{AttrMask(0), "0"},
		{QPStateMask | QPDestQPN, "STATE|DEST_QPN"},
		{QPCapMask | QPRateLimit | 1<<31 | 1<<21, "CAP|RATE_LIMIT|0x80200000"},
		{AttrMask(1 << 30), "0x40000000"},
		{MTU4096, "4096"},
		{MTU256, "256"},
		{MTU(0), "MTU(0)"},
		{AccessLocalWrite | AccessRemoteAtomic | 1<<20, "LOCAL_WRITE|REMOTE_ATOMIC|0x100000"},
		{GID{0xfe, 0x80, 15: 1}, "fe80:0000:0000:0000:0000:0000:0000:0001"},
		{GIDTypeRoCEv2, "RoCE v2"},
		{GIDType(0), "GIDType(0)"},
		{OpRDMAWriteWithImm, "RDMA_WRITE_WITH_IMM"},
		{OpRegMR, "REG_MR"},
		{SendFence | SendSolicited, "FENCE|SOLICITED"},
		{WCSuccess, "SUCCESS"},
		{WCWRFlushErr, "WR_FLUSH_ERR"},
		{WCRNRRetryExcErr, "RNR_RETRY_EXC_ERR"},
		{WCGeneralErr, "GENERAL_ERR"},
		{WCStatus(22), "WCStatus(22)"},
		{WCOpRecvRDMAWithImm, "RECV_RDMA_WITH_IMM"},
		{WCGRH | WCWithInvalidate, "GRH|WITH_INVALIDATE"},
		{EventQPLastWQEReached, "QP_LAST_WQE_REACHED"},
		{EventType(99), "EventType(99)"},
	}
	for _, c := range cases {
		if got := c.word.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

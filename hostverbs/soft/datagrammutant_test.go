// SPDX-License-Identifier: Apache-2.0

package soft_test

import "github.com/pvrdmad/pvrdmad/hostverbs"

// datagramMutants have faults in what is particular to datagrams.
func datagramMutants() []mutant {
	return []mutant{
		{
			name: "a datagram comes from nobody", promise: "a datagram of any size arrives behind the header of its way",
			received: func(_ *mutantContext, wc *hostverbs.WC) int {
				if wc.Flags&hostverbs.WCGRH != 0 {
					wc.SrcQP = 0
				}
				return 1
			},
		},
		{
			name: "every header is called IPv4", promise: "the header in front of a datagram is that of the addresses' family",
			received: func(_ *mutantContext, wc *hostverbs.WC) int {
				if wc.Flags&hostverbs.WCGRH != 0 {
					wc.NetworkHdrType = hostverbs.NetworkIPv4
				}
				return 1
			},
		},
		{
			name: "a request's Q_Key is used as it is", promise: "a Q_Key with its high bit set stands for the queue pair's own",
			post: func(wr *hostverbs.SendWR) { wr.RemoteQKey &^= 1 << 31 },
		},
		{
			name: "all is sent from the first address", promise: "a datagram to where no way leads is refused",
			post: func(wr *hostverbs.SendWR) { wr.AH.SGIDIndex = 0 },
		},
		{
			name: "management datagrams have a default peer", promise: "a management datagram goes to the guest that has the address, and to nobody else",
			post: func(wr *hostverbs.SendWR) {
				if wr.RemoteQPN == 1 {
					wr.AH.DGID = hostverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}
				}
			},
		},
	}
}

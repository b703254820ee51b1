// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// reliable says whether the queue pair's messages are acknowledged. Of the others the sender learns nothing, and what cannot be
// received is dropped without a trace at either end (InfiniBand architecture 9.8).
func (q *qp) reliable() bool { return q.typ == hostverbs.QPTypeRC }

// unheard is for a message that nobody answers. It says whether the request is still under way.
func (q *qp) unheard(wr *hostverbs.SendWR) (under bool) {
	if q.reliable() {
		q.awaitAck()
		return true
	}
	q.sent(wr, hostverbs.WCSuccess)
	return false
}

// lost drops a message that the queue pair cannot receive. The status is for nobody, and stops what was about to be done.
func (q *qp) lost(why DropReason) (reply, hostverbs.WCStatus) {
	q.pl.lose(why)
	return replyNone, hostverbs.WCRemOpErr
}

// lose counts what is dropped.
func (pl *poller) lose(why DropReason) { pl.count.add(cntDrops+int(why), 1) }

// DropReason is why a message that is not reliable reached nobody.
type DropReason uint8

// Drop reasons.
const (
	// DropNoAddress: no guest has the destination GID, in this version of RoCE.
	DropNoAddress DropReason = iota
	// DropNoQP: the guest has no such queue pair, or not of this type, or not ready to receive, or one that is connected
	// with another.
	DropNoQP
	// DropQKey: the queue pair has another Q_Key.
	DropQKey
	// DropNoReceive: no receive was posted.
	DropNoReceive
	// DropTooLong: the receive was shorter than the message.
	DropTooLong
	// DropRefused: the queue pair or the memory region does not permit the operation.
	DropRefused
	// DropNotMAD: it came to a GSI queue pair, and is no management datagram.
	DropNotMAD
	// DropPortDown: the port of the guest that sends is down.
	DropPortDown
	dropReasons
)

// String returns the reason as the metric label has it.
func (r DropReason) String() string {
	return [dropReasons]string{
		"no_address", "no_qp", "q_key", "no_receive", "too_long", "refused", "not_a_mad", "port_down",
	}[r]
}

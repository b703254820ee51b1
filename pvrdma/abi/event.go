// SPDX-License-Identifier: Apache-2.0

package abi

// EventType is enum pvrdma_eqe_type (pvrdma_dev_api.h), the type of an asynchronous event.
type EventType uint32

// The values of [EventType].
const (
	EventCQErr            EventType = 0
	EventQPFatal          EventType = 1
	EventQPReqErr         EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4
	EventSQDrained        EventType = 5
	EventPathMig          EventType = 6
	EventPathMigErr       EventType = 7
	EventDeviceFatal      EventType = 8
	EventPortActive       EventType = 9
	EventPortErr          EventType = 10
	EventLIDChange        EventType = 11
	EventPKeyChange       EventType = 12
	EventSMChange         EventType = 13
	EventSRQErr           EventType = 14
	EventSRQLimitReached  EventType = 15
	EventQPLastWQEReached EventType = 16
	EventClientReregister EventType = 17
	EventGIDChange        EventType = 18
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (e EventType) String() string {
	return enumString(uint32(e), []string{
		0:  "CQ_ERR",
		1:  "QP_FATAL",
		2:  "QP_REQ_ERR",
		3:  "QP_ACCESS_ERR",
		4:  "COMM_EST",
		5:  "SQ_DRAINED",
		6:  "PATH_MIG",
		7:  "PATH_MIG_ERR",
		8:  "DEVICE_FATAL",
		9:  "PORT_ACTIVE",
		10: "PORT_ERR",
		11: "LID_CHANGE",
		12: "PKEY_CHANGE",
		13: "SM_CHANGE",
		14: "SRQ_ERR",
		15: "SRQ_LIMIT_REACHED",
		16: "QP_LAST_WQE_REACHED",
		17: "CLIENT_REREGISTER",
		18: "GID_CHANGE",
	})
}

// SPDX-License-Identifier: Apache-2.0

package testguest

import (
	"errors"

	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// GRHBytes is the room for a datagram's header at the begin of its receive.
const GRHBytes = 40

// ReadyForDatagrams takes the endpoint's UD queue pair from RESET to ready, with a Q_Key.
func (e *Endpoint) ReadyForDatagrams(qkey uint32) {
	e.t.Helper()
	if err := errors.Join(
		e.QP.Modify(e.QP.Attr().WithState("INIT").With("PKEY_INDEX", "pkey_index", 0).With("PORT", "port_num", 1).
			With("QKEY", "qkey", uint64(qkey))),
		e.QP.Modify(e.QP.Attr().WithState("RTR")),
		e.QP.Modify(e.QP.Attr().WithState("RTS").With("SQ_PSN", "sq_psn", 0xffffff)),
	); err != nil {
		e.t.Fatalf("make queue pair %d ready for datagrams: %v", e.QP.Handle, err)
	}
}

// Datagram makes a work request for n bytes at an offset of the endpoint's memory, to a queue pair whose guest has the path's
// address.
func (e *Endpoint) Datagram(path verbs.Path, qkey uint32, off, n int) verbs.SendWR {
	wr := e.Op("SEND", Address{}, off, n)
	wr.AV, wr.QPN, wr.QKey = e.PD.AV(path), path.QPN, qkey
	return wr
}

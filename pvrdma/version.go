// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// gsiQPN is the number of every guest's GSI queue pair, as the InfiniBand architecture has it.
const gsiQPN = 1

// checkVersion says whether there is a device of a version with GIDs of a type (PVRDMA_SUPPORTED in pvrdma_dev_api.h).
func checkVersion(version uint32, typ hostverbs.GIDType) error {
	switch {
	case version < abi.VersionRoCEv1 || version > abi.VersionMax:
		return fmt.Errorf("version %d, there are %d to %d: %w", version, abi.VersionRoCEv1, abi.VersionMax, unix.EINVAL)
	case version < abi.VersionRoCEv2 && typ != hostverbs.GIDTypeRoCEv1:
		return fmt.Errorf("version %d knows RoCE v1 alone: %w", version, unix.EINVAL)
	}
	return nil
}

// Version is what the device says of itself.
func (d *Device) Version() uint32 { return d.cfg.Version }

// CheckDriver says whether the device serves a driver of a version: any that there was, and later ones as if they were of the
// device's own. EOPNOTSUPP if not.
func (d *Device) CheckDriver(version uint32) error {
	switch {
	case version < abi.VersionRoCEv1:
		return fmt.Errorf("driver version %d, the first was %d: %w", version, abi.VersionRoCEv1, unix.EOPNOTSUPP)
	case version < abi.VersionRoCEv2 && d.cfg.GIDType != hostverbs.GIDTypeRoCEv1:
		return fmt.Errorf("driver version %d knows RoCE v1 alone, configure roce = 1 or use a newer guest kernel: %w", version,
			unix.EOPNOTSUPP)
	}
	return nil
}

// numbersAreHandles reports whether the driver takes a queue pair's number for its handle. It does until there is a field
// for the handle (struct pvrdma_cmd_create_qp_resp_v2).
func (d *Device) numbersAreHandles() bool { return d.version < abi.VersionQPHandle }

// freeQPHandle returns the handle that a new queue pair of a type gets, and the number that it must have therefore, 0 if the
// engine may choose. Where one is the other, handle 1 is the GSI's, because that is its number.
func (d *Device) freeQPHandle(typ abi.QPType) (handle, qpn uint32, err error) {
	same := d.numbersAreHandles()
	if same && typ == abi.QPTypeGSI {
		if d.qps.get(gsiQPN) != nil {
			return 0, 0, fmt.Errorf("a second GSI queue pair: %w", unix.EBUSY)
		}
		return gsiQPN, 0, nil
	}
	if err := d.qps.full(); err != nil {
		return 0, 0, fmt.Errorf("%d queue pairs: %w", d.qps.live, err)
	}
	handle = d.qps.next()
	if same {
		qpn = handle
	}
	return handle, qpn, nil
}

// answerCreateQP writes the response to CREATE_QP, of which there are two forms.
func (d *Device) answerCreateQP(q *queuePair, r *abi.CmdCreateQPReq, resp *Response) {
	if d.numbersAreHandles() {
		a := abi.CmdCreateQPResp{
			Hdr: ack(abi.CmdCreateQP), QPN: q.engine.QPN(), MaxSendWR: r.MaxSendWR, MaxRecvWR: r.MaxRecvWR,
			MaxSendSGE: r.MaxSendSGE, MaxRecvSGE: r.MaxRecvSGE,
		}
		a.Encode(resp[:])
		return
	}
	a := abi.CmdCreateQPRespV2{
		Hdr: ack(abi.CmdCreateQP), QPN: q.engine.QPN(), QPHandle: q.handle, MaxSendWR: r.MaxSendWR,
		MaxRecvWR: r.MaxRecvWR, MaxSendSGE: r.MaxSendSGE, MaxRecvSGE: r.MaxRecvSGE,
	}
	a.Encode(resp[:])
}

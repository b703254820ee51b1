// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"slices"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// physStateLinkUp is the physical port state of a link that is up (InfiniBand architecture, PortInfo).
const (
	physStateLinkUp   = 5
	physStateDisabled = 3
)

const (
	// vlanNone is what Linux sends for every GID (pvrdma_add_gid_at_index in pvrdma_main.c).
	vlanNone = 0xfff
	// vlanNoTag is how its RDMA core says that a GID has no VLAN (rdma_vlan_dev_vlan_id in include/rdma/ib_addr.h).
	vlanNoTag = 0xffff
)

func (d *Device) queryPort(req *Request, resp *Response) error {
	var q abi.CmdQueryPortReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	if q.PortNum != portNum {
		return fmt.Errorf("port %d, the device has port 1: %w", q.PortNum, unix.EINVAL)
	}
	p := d.provider.QueryPort()
	r := abi.CmdQueryPortResp{Hdr: ack(abi.CmdQueryPort), Attrs: abi.PortAttr{
		State: abi.PortDown, MaxMTU: abi.MTU(p.MaxMTU), ActiveMTU: abi.MTU(p.ActiveMTU), GIDTblLen: gidTableLen,
		PortCapFlags: abi.PortCapIPBasedGIDs, MaxMsgSz: p.MaxMsgSize, PKeyTblLen: pkeyTableLen, MaxVLNum: 1,
		ActiveWidth: abi.PortWidth(p.ActiveWidth), ActiveSpeed: abi.PortSpeed(p.ActiveSpeed), PhysState: physStateDisabled,
	}}
	if p.Active && !d.linkDown {
		r.Attrs.State, r.Attrs.PhysState = abi.PortActive, physStateLinkUp
	}
	r.Encode(resp[:])
	return nil
}

func (d *Device) queryPKey(req *Request, resp *Response) error {
	var q abi.CmdQueryPKeyReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	if q.PortNum != portNum || q.Index >= pkeyTableLen {
		return fmt.Errorf("pkey %d of port %d, there is pkey 0 of port 1: %w", q.Index, q.PortNum, unix.EINVAL)
	}
	r := abi.CmdQueryPKeyResp{Hdr: ack(abi.CmdQueryPKey), PKey: defaultPKey}
	r.Encode(resp[:])
	return nil
}

func (d *Device) createBind(req *Request, _ *Response) error {
	var q abi.CmdCreateBindReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	if q.Index >= gidTableLen {
		return fmt.Errorf("gid %d, the table has %d: %w", q.Index, gidTableLen, unix.EINVAL)
	}
	if hostverbs.GIDType(q.GIDType) != d.cfg.GIDType {
		return fmt.Errorf("gid %v has type %v, the device has %v: %w", q.NewGID, q.GIDType, abi.GIDTypes(d.cfg.GIDType),
			unix.EINVAL)
	}
	if q.VLAN != 0 && q.VLAN != vlanNone && q.VLAN != vlanNoTag {
		return fmt.Errorf("gid %v on vlan %d, the device has no vlans: %w", q.NewGID, q.VLAN, unix.EOPNOTSUPP)
	}
	gid := hostverbs.GID(q.NewGID)
	if gid == (hostverbs.GID{}) {
		return fmt.Errorf("gid %d is all zero: %w", q.Index, unix.EINVAL)
	}
	if len(d.cfg.GIDs) != 0 && !slices.Contains(d.cfg.GIDs, gid) {
		return fmt.Errorf("gid %v is not in the guest's list of gids: %w", q.NewGID, unix.EPERM)
	}
	return d.engine.BindGID(int(q.Index), gid, d.cfg.GIDType)
}

func (d *Device) destroyBind(req *Request, _ *Response) error {
	var q abi.CmdDestroyBindReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	if q.Index >= gidTableLen {
		return fmt.Errorf("gid %d, the table has %d: %w", q.Index, gidTableLen, unix.EINVAL)
	}
	return d.engine.UnbindGID(int(q.Index), hostverbs.GID(q.DestGID))
}

// ack is the header of a response that says success.
func ack(c abi.Cmd) abi.RespHeader { return abi.RespHeader{Ack: c.Ack()} }

// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// mayWrite are the access flags for which the device has to write to the region.
const mayWrite = abi.AccessLocalWrite | abi.AccessRemoteWrite | abi.AccessRemoteAtomic

// guestAccess are the access flags that mean something to the device. Others are optional, or of other devices.
const guestAccess = abi.AccessLocalWrite | abi.AccessRemoteWrite | abi.AccessRemoteRead | abi.AccessRemoteAtomic

func (d *Device) createMR(req *Request, resp *Response) error {
	var q abi.CmdCreateMRReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	pd := d.pds.get(q.PDHandle)
	if pd == nil {
		return noSuch("protection domain", q.PDHandle)
	}
	if err := d.mrs.full(); err != nil {
		return fmt.Errorf("%d memory regions: %w", d.mrs.live, err)
	}
	m := &memoryRegion{pd: pd}
	if err := d.registerMR(&q, m); err != nil {
		m.release()
		return err
	}
	d.worker.Do(func() {
		m.handle = d.mrs.add(m)
		d.pinned += uint64(m.npages)
	})
	r := abi.CmdCreateMRResp{
		Hdr: ack(abi.CmdCreateMR), MRHandle: m.handle, LKey: m.engine.LKey(), RKey: m.engine.RKey(),
	}
	r.Encode(resp[:])
	return nil
}

// registerMR makes the region that the request asks for. On an error m may have pages to release.
func (d *Device) registerMR(q *abi.CmdCreateMRReq, m *memoryRegion) error {
	if q.Flags == abi.MRFlagFRMR {
		return d.allocMR(q, m)
	}
	attr, err := d.mrAttr(q, m)
	if err != nil {
		return err
	}
	m.engine, err = d.engine.RegMR(m.pd.engine, attr)
	return err
}

// mrAttr checks a registration and pins its memory into m.
func (d *Device) mrAttr(q *abi.CmdCreateMRReq, m *memoryRegion) (hostverbs.MRAttr, error) {
	var attr hostverbs.MRAttr
	switch q.Flags {
	case 0:
		return d.userMRAttr(q, m)
	case abi.MRFlagDMA:
		if m.pd.ctx != d.kernel {
			return attr, fmt.Errorf("region of all memory for a user's protection domain %d: %w", q.PDHandle, unix.EPERM)
		}
		if q.AccessFlags&^abi.AccessLocalWrite != 0 { // as pvrdma_get_dma_mr in pvrdma_mr.c
			return attr, fmt.Errorf("region of all memory with access %v, only local access is possible: %w", q.AccessFlags,
				unix.EOPNOTSUPP)
		}
		return hostverbs.MRAttr{Memory: d.mem, Access: hostverbs.AccessFlags(q.AccessFlags), DMA: true}, nil
	}
	return attr, fmt.Errorf("memory region with flags %v: %w", q.Flags, unix.EINVAL)
}

func (d *Device) userMRAttr(q *abi.CmdCreateMRReq, m *memoryRegion) (attr hostverbs.MRAttr, err error) {
	if q.Length == 0 || q.Length > d.caps.MaxMRSize {
		return attr, fmt.Errorf("memory region of %d bytes, want 1 to %d: %w", q.Length, d.caps.MaxMRSize, unix.EINVAL)
	}
	if q.AccessFlags&abi.AccessZeroBased != 0 {
		return attr, fmt.Errorf("memory region with addresses from 0 on, they begin at %#x: %w", q.Start, unix.EOPNOTSUPP)
	}
	need, ok := abi.MRPages(q.Start, q.Length)
	if !ok || need > abi.MaxPages || uint64(q.NChunks) < need || q.NChunks > abi.MaxPages {
		return attr, fmt.Errorf("memory region %#x+%#x in %d pages, want %d: %w", q.Start, q.Length, q.NChunks, need,
			unix.EINVAL)
	}
	prot := guestmem.ProtRead
	if q.AccessFlags&mayWrite != 0 {
		prot |= guestmem.ProtWrite
	}
	if m.pages, err = d.pinRegion(q.PDirDMA, uint32(need), prot); err != nil {
		return attr, fmt.Errorf("memory region %#x+%#x: %w", q.Start, q.Length, err)
	}
	m.npages = uint32(need)
	return hostverbs.MRAttr{
		Memory: m.pages, Offset: q.Start % abi.PageSize, Start: q.Start, Length: q.Length,
		Access: hostverbs.AccessFlags(q.AccessFlags & guestAccess),
	}, nil
}

func (d *Device) destroyMR(req *Request, _ *Response) error {
	var q abi.CmdDestroyMRReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	m := d.mrs.get(q.MRHandle)
	if m == nil {
		return noSuch("memory region", q.MRHandle)
	}
	return d.removeMR(m)
}

func (d *Device) removeMR(m *memoryRegion) error {
	if err := m.engine.Dereg(); err != nil {
		return fmt.Errorf("memory region %d: %w", m.handle, err)
	}
	d.worker.Do(func() {
		d.mrs.remove(m.handle)
		d.pinned -= uint64(m.npages)
		m.release()
	})
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package driver

// CreateUC makes a user context of a doorbell page and returns its handle.
func (d *Device) CreateUC(pfn uint64) (uint32, error) {
	c := d.newCommand("create_uc", "CREATE_UC")
	if d.Effective() < d.L.Const("PVRDMA_PPN64_VERSION") {
		c.req.Set("pfn", pfn)
	} else {
		c.req.Set("pfn64", pfn)
	}
	c.ack = "CREATE_UC_RESP"
	b, err := d.run(c)
	if err != nil {
		return 0, err
	}
	return d.resp("create_uc_resp", b).Get32("ctx_handle"), nil
}

// DestroyUC ends a user context.
func (d *Device) DestroyUC(handle uint32) error {
	return d.destroy("destroy_uc", "DESTROY_UC", "ctx_handle", handle)
}

// destroy runs a command that has a handle and no response.
func (d *Device) destroy(name, code, field string, handle uint32) error {
	c := d.newCommand(name, code)
	c.req.Set(field, uint64(handle))
	_, err := d.run(c)
	return err
}

// CreatePD makes a protection domain in a context; context 0 is the kernel's.
func (d *Device) CreatePD(context uint32) (uint32, error) {
	c := d.newCommand("create_pd", "CREATE_PD")
	c.req.Set("ctx_handle", uint64(context))
	c.ack = "CREATE_PD_RESP"
	b, err := d.run(c)
	if err != nil {
		return 0, err
	}
	return d.resp("create_pd_resp", b).Get32("pd_handle"), nil
}

// DestroyPD ends a protection domain.
func (d *Device) DestroyPD(handle uint32) error {
	return d.destroy("destroy_pd", "DESTROY_PD", "pd_handle", handle)
}

// MRParams are the arguments of CREATE_MR.
type MRParams struct {
	Start, Length, PDir       uint64
	PD, Access, Flags, Chunks uint32
}

// MR is what CREATE_MR returns.
type MR struct{ Handle, LKey, RKey uint32 }

// CreateMR registers memory.
func (d *Device) CreateMR(p MRParams) (MR, error) {
	c := d.newCommand("create_mr", "CREATE_MR")
	c.req.Set("start", p.Start).Set("length", p.Length).Set("pdir_dma", p.PDir).Set("pd_handle", uint64(p.PD)).
		Set("access_flags", uint64(p.Access)).Set("flags", uint64(p.Flags)).Set("nchunks", uint64(p.Chunks))
	c.ack = "CREATE_MR_RESP"
	b, err := d.run(c)
	if err != nil {
		return MR{}, err
	}
	r := d.resp("create_mr_resp", b)
	return MR{Handle: r.Get32("mr_handle"), LKey: r.Get32("lkey"), RKey: r.Get32("rkey")}, nil
}

// DestroyMR takes a registration back.
func (d *Device) DestroyMR(handle uint32) error {
	return d.destroy("destroy_mr", "DESTROY_MR", "mr_handle", handle)
}

// CQParams are the arguments of CREATE_CQ.
type CQParams struct {
	PDir                 uint64
	Context, CQE, Chunks uint32
}

// CreateCQ makes a completion queue; cqe is the size that the device wants the guest to use.
func (d *Device) CreateCQ(p CQParams) (handle, cqe uint32, err error) {
	c := d.newCommand("create_cq", "CREATE_CQ")
	c.req.Set("pdir_dma", p.PDir).Set("ctx_handle", uint64(p.Context)).Set("cqe", uint64(p.CQE)).
		Set("nchunks", uint64(p.Chunks))
	c.ack = "CREATE_CQ_RESP"
	b, err := d.run(c)
	if err != nil {
		return 0, 0, err
	}
	r := d.resp("create_cq_resp", b)
	return r.Get32("cq_handle"), r.Get32("cqe"), nil
}

// DestroyCQ ends a completion queue.
func (d *Device) DestroyCQ(handle uint32) error {
	return d.destroy("destroy_cq", "DESTROY_CQ", "cq_handle", handle)
}

// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// turn makes a request another one, for another queue pair.
func turn(make func(b *board) layout.View) func(b *board, v layout.View) {
	return func(b *board, v layout.View) { copy(v.Bytes(), make(b).Bytes()); v.Set("hdr.response", token) }
}

var (
	toInit = turn(func(b *board) layout.View { return b.ToInit(b.qps["RESET"].Handle) })
	toRTS  = turn(func(b *board) layout.View { return b.ToRTS(b.qps["RTR"].Handle) })
	toSQD  = turn(func(b *board) layout.View { return b.ToState(b.qps["RTS"].Handle, "SQD") })
	toErr  = turn(func(b *board) layout.View { return b.ToState(b.qps["RTS"].Handle, "ERR") })
	gsiUp  = turn(func(b *board) layout.View {
		return b.ToInit(b.gsi.Handle).Set("attr_mask", b.Mask("STATE", "PKEY_INDEX", "QKEY")).Set("attrs.qkey", 0x80010000)
	})
)

// masked adds bits to a request's mask.
func masked(base func(b *board, v layout.View), attrs ...string) func(b *board, v layout.View) {
	return func(b *board, v layout.View) {
		if base != nil {
			base(b, v)
		}
		v.Set("attr_mask", v.Get("attr_mask")|b.Mask(attrs...))
	}
}

// unmasked are attributes that modify_qp copies always, selected or not.
func unmasked(values ...any) []cell {
	return ignored("not selected by the mask: modify_qp copies every attribute, whatever it holds", values...)
}

// modifyQP has INIT to RTR for its honest request; attributes of other transitions bring their own.
func modifyQP() command {
	c := command{
		honest: func(b *board) layout.View {
			return b.ToRTR(b.qps["INIT"].Handle, inproc.Peer{GID: b.GID(0), QPN: b.qps["RESET"].QPN})
		},
		fields: map[string][]cell{
			"qp_handle": handles(func(b *board) uint32 { return b.deadQP }, lastPD, 0),
			"attr_mask": maskCells(),
		},
	}
	for _, fields := range []map[string][]cell{stateFields(), pathFields(), transportFields(), addressFields(), otherFields()} {
		for path, cells := range fields {
			c.fields["attrs."+path] = cells
		}
	}
	return c
}

// rtrMask are the bits of INIT to RTR.
const rtrMask = 1<<0 | 1<<7 | 1<<8 | 1<<20 | 1<<12 | 1<<17 | 1<<15

func maskCells() (out []cell) {
	need := func(bit int) bool { return rtrMask&(1<<bit) != 0 && bit != 0 }
	const may = 1<<14 | 1<<3 | 1<<4 // ALT_PATH, which RoCE does not have, ACCESS_FLAGS, PKEY_INDEX
	for bit := range 32 {
		switch {
		case bit > 20:
			out = append(out, refused(unix.EOPNOTSUPP, rtrMask|1<<bit)...)
		case need(bit):
			out = append(out, refused(unix.EINVAL, rtrMask&^(1<<bit))...)
		case may&(1<<bit) != 0 && bit != 14:
			out = append(out, taken(rtrMask|1<<bit)...)
		case bit != 0:
			out = append(out, refused(unix.EINVAL, rtrMask|1<<bit)...)
		}
	}
	return join(out, refused(unix.EINVAL, rtrMask&^1, 1), refused(unix.EOPNOTSUPP, max32),
		taken(num("nothing at all", at(0))))
}

func stateFields() map[string][]cell {
	return map[string][]cell{
		// RTR is the honest one; INIT lacks nothing but has attributes too many.
		"qp_state": join(refused(unix.EINVAL, 1, 3, 4, 5, 7, 8, 255, 256, 258, 1<<31, max32),
			with("alone", toErr, taken(0, 4, 6), refused(unix.EINVAL, 1, 2, 5, 7, 256, 262, max32))),
		"cur_qp_state": join(unmasked(0, 6, max32),
			with("RTR to RTS", masked(toRTS, "CUR_STATE"), refused(unix.EINVAL, 0, 1, 3, 7, 258, max32), taken(2))),
		"en_sqd_async_notify": join(unmasked(1, 255), with("RTS to SQD", masked(toSQD, "EN_SQD_ASYNC_NOTIFY"), taken(0, 1, 255))),
		"sq_draining":         ignored("an answer of query_qp: there is no mask bit for it", 1, 255),
	}
}

func pathFields() map[string][]cell {
	alternate := masked(nil, "ALT_PATH")
	return map[string][]cell{
		"path_mtu": join(refused(unix.EINVAL, 0, 6, 255, 256, 256+3, 4096, 1<<31, max32), taken(1, 2, 3, 4, 5)),
		"path_mig_state": join(unmasked(1, max32),
			with("RTR to RTS", masked(toRTS, "PATH_MIG_STATE"), refused(unix.EINVAL, 1, 2, 3, 256, max32), taken(0))),
		"pkey_index": join(unmasked(1, 0xffff), with("RESET to INIT", toInit, refused(unix.EINVAL, 1, 255, 256, 0xffff), taken(0))),
		"port_num":   join(unmasked(0, 2, 255), with("RESET to INIT", toInit, refused(unix.EINVAL, 0, 2, 255), taken(1))),
		// RoCE has no alternate paths: selected, all of them are refused.
		"alt_pkey_index": join(unmasked(1, 0xffff), with("selected", alternate, refused(unix.EINVAL, 0, 1))),
		"alt_port_num":   join(unmasked(1, 255), with("selected", alternate, refused(unix.EINVAL, 0, 1))),
		"alt_timeout":    join(unmasked(1, 255), with("selected", alternate, refused(unix.EINVAL, 0, 1))),
	}
}

func transportFields() map[string][]cell {
	rts := func(over int) []cell {
		return join(unmasked(1, 255), with("RTR to RTS", toRTS, refused(unix.EINVAL, over, over+1, 255), taken(0, over-1)))
	}
	psn := func(wrong ...any) []cell { return taken(append(wrong, 0, 0xffffff, 0x1000000, max32)...) }
	return map[string][]cell{
		"qkey":               join(unmasked(1, max32), with("of the GSI queue pair", gsiUp, taken(0, 1<<31, max32))),
		"rq_psn":             psn(), // ib_modify_qp cuts them to 24 bits, and so does the device
		"sq_psn":             join(unmasked(1, max32), with("RTR to RTS", toRTS, psn())),
		"dest_qp_num":        join(refused(unix.EINVAL, 1<<24, 1<<31, max32), taken(0, 1, 0xffffff)),
		"max_rd_atomic":      rts(17),
		"timeout":            rts(32),
		"retry_cnt":          rts(8),
		"rnr_retry":          rts(8),
		"max_dest_rd_atomic": join(refused(unix.EINVAL, 17, 255), taken(0, 16)),
		"min_rnr_timer":      join(refused(unix.EINVAL, 32, 255), taken(0, 31)),
		"qp_access_flags": join(unmasked(0, max32),
			with("RESET to INIT", toInit, taken(0, 7, 15, 1<<20, max32))), // rights of what it cannot do allow nothing
	}
}

// addressFields are those of the address vector, and of the alternate one, which nobody selects.
func addressFields() map[string][]cell {
	none := ignored("nothing of RoCE: the driver sends it uninitialised or 0", 1, 255)
	fields := map[string][]cell{
		"grh.dgid.raw":                  taken(make([]byte, 16), append([]byte{0xff, 0x02}, make([]byte, 14)...)),
		"grh.dgid.global.subnet_prefix": taken(0, max64),
		"grh.dgid.global.interface_id":  taken(0, max64),
		"grh.flow_label":                taken(0, 0xfffff, 0x100000, max32),
		"grh.sgid_index":                refused(unix.EINVAL, 1, 2, 255),
		"grh.hop_limit":                 taken(0, 255),
		"grh.traffic_class":             taken(0, 255),
		"grh.reserved":                  reserved(1),
		"dlid":                          none,
		"vlan_id":                       none,
		"sl":                            taken(0, 15, 16, 255),
		"src_path_bits":                 taken(0, 255),
		"static_rate":                   taken(0, 255),
		"ah_flags":                      join(refused(unix.EINVAL, 0, 2, 254), ignored("GRH is the only flag", 3, 255)),
		"port_num":                      refused(unix.EINVAL, 0, 2, 255),
		"dmac":                          taken(make([]byte, 6), []byte{1, 0, 0x5e, 0, 0, 1}),
		"reserved":                      reserved(1),
	}
	out := map[string][]cell{}
	for path, cells := range fields {
		out["ah_attr."+path] = cells
		out["alt_ah_attr."+path] = unmasked(valueOfOnes(path))
	}
	return out
}

func valueOfOnes(path string) any {
	switch path {
	case "grh.dgid.raw":
		return fill(16)
	case "dmac":
		return fill(6)
	}
	return max64
}

func fill(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xff
	}
	return b
}

func otherFields() map[string][]cell {
	fields := map[string][]cell{"reserved": reserved(5), "cap.reserved": reserved(4)}
	for _, f := range []string{"max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data"} {
		fields["cap."+f] = join(unmasked(1, max32),
			with("selected", masked(nil, "CAP"), refused(unix.EINVAL, 0, inproc.QPDepth, max32)))
	}
	return fields
}

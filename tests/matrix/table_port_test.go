// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// portCommands query the port and bind its addresses.
func portCommands() map[string]command {
	port := join(refused(unix.EINVAL, 0, 2, 255), taken(1))
	return map[string]command{
		"query_port": {
			honest: func(b *board) layout.View { return b.Request("query_port").Set("port_num", 1) },
			fields: map[string][]cell{"port_num": port, "reserved": reserved(7)},
		},
		"query_pkey": {
			honest: func(b *board) layout.View { return b.Request("query_pkey").Set("port_num", 1) },
			fields: map[string][]cell{
				"port_num": port, "index": join(refused(unix.EINVAL, 1, 255), taken(0)), "reserved": reserved(6),
			},
		},
		"create_bind": createBind(),
		"destroy_bind": {
			honest: func(b *board) layout.View {
				return b.Request("destroy_bind").Set("index", 0).SetBytes("dest_gid", b.GID(0))
			},
			fields: map[string][]cell{
				"index": join(refused(unix.EINVAL, 256, 1<<31, max32), refused(unix.ENOENT, 1, 255)),
				"dest_gid": refused(unix.ENOENT, make([]byte, 16), gid("one that is not bound", func(b *board) []byte { return b.GID(9) }),
					gid("the other guest's", func(b *board) []byte { return b.other.GID(0) })),
				"reserved": reserved(4),
			},
		},
	}
}

func gid(name string, f func(b *board) []byte) named {
	return named{name, func(b *board) any { return f(b) }}
}

// otherGIDType is the version of RoCE that the devices do not have.
func otherGIDType() int {
	return int(hostverbs.GIDTypeRoCEv1 + hostverbs.GIDTypeRoCEv2 - inproc.GIDType())
}

func createBind() command {
	return command{
		honest: func(b *board) layout.View { return b.BindRequest(3) },
		fields: map[string][]cell{
			"mtu": ignored("add_gid writes 1024 whatever the MTU is; modify_qp brings the path's own", 0, 1, 1025, max32),
			"vlan": join(
				refused(unix.EOPNOTSUPP, 1, 2, 4094, 4096, 1<<16, max32),
				ignored("other ways to say none: no VLAN tag, the priority tag, and add_gid's own 4095", 0, 0xfff, 0xffff)),
			"index": join(refused(unix.EINVAL, 256, 1<<31, max32), taken(0, 1, 255)),
			"new_gid": join(
				refused(unix.EINVAL, make([]byte, 16), append([]byte{0xff, 0x02}, make([]byte, 14)...)),
				refused(unix.EADDRINUSE, gid("the other guest's", func(b *board) []byte { return b.other.GID(0) })),
				taken(gid("one that it has already", func(b *board) []byte { return b.GID(0) }))),
			"gid_type": refused(unix.EINVAL, 0, otherGIDType(), 3, 4, 255),
			"reserved": reserved(3),
		},
	}
}

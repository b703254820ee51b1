// SPDX-License-Identifier: Apache-2.0

package driver

import "github.com/pvrdmad/pvrdmad/internal/testguest/layout"

// resp views a response structure in the response slot's bytes.
func (d *Device) resp(name string, b []byte) layout.View { return d.L.View("pvrdma_cmd_"+name, b) }

// sub copies a structure that is a field of another.
func (d *Device) sub(v layout.View, path, name string) layout.View {
	s := d.L.New(name)
	copy(s.Bytes(), v.Slice(path))
	return s
}

// QueryPort returns a port's struct pvrdma_port_attr.
func (d *Device) QueryPort(port uint8) (layout.View, error) {
	c := d.newCommand("query_port", "QUERY_PORT")
	c.req.Set("port_num", uint64(port))
	c.ack = "QUERY_PORT_RESP"
	b, err := d.run(c)
	if err != nil {
		return layout.View{}, err
	}
	return d.sub(d.resp("query_port_resp", b), "attrs", "pvrdma_port_attr"), nil
}

// QueryPKey returns an entry of a port's table of partition keys.
func (d *Device) QueryPKey(port, index uint8) (uint16, error) {
	c := d.newCommand("query_pkey", "QUERY_PKEY")
	c.req.Set("port_num", uint64(port)).Set("index", uint64(index))
	c.ack = "QUERY_PKEY_RESP"
	b, err := d.run(c)
	if err != nil {
		return 0, err
	}
	return uint16(d.resp("query_pkey_resp", b).Get("pkey")), nil
}

// bindMTU and bindVLAN are what the driver writes into every CREATE_BIND: IB_MTU_1024 in bytes and no VLAN.
const (
	bindMTU  = 1024
	bindVLAN = 0xfff
)

// CreateBind puts a GID into the table. gidType is a flag, PVRDMA_GID_TYPE_FLAG_*.
func (d *Device) CreateBind(index uint32, gid [16]byte, gidType uint8) error {
	c := d.newCommand("create_bind", "CREATE_BIND")
	c.req.Set("mtu", bindMTU).Set("vlan", bindVLAN).Set("index", uint64(index)).SetBytes("new_gid", gid[:]).
		Set("gid_type", uint64(gidType))
	_, err := d.run(c)
	return err
}

// DestroyBind takes a GID out of the table.
func (d *Device) DestroyBind(index uint32, gid [16]byte) error {
	c := d.newCommand("destroy_bind", "DESTROY_BIND")
	c.req.Set("index", uint64(index)).SetBytes("dest_gid", gid[:])
	_, err := d.run(c)
	return err
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

// counter is a PCI device with one register, in BAR0: writing adds to it, and raises MSI-X vector 0.
type counter struct {
	session *vfiouser.Session
	config  *vfiouser.ConfigSpace
	value   uint32
}

func openCounter(s *vfiouser.Session) (_ vfiouser.Device, err error) {
	c := &counter{session: s}
	id := vfiouser.Identity{VendorID: 0x1b36, DeviceID: 0x1001, Class: 0xff0000} // a class of its own
	c.config, err = vfiouser.NewConfigSpace(id, c.Regions(), vfiouser.MSIX{Vectors: 1, TableOffset: 0x800, PBAOffset: 0xc00})
	return c, err
}

func (c *counter) Regions() []vfiouser.Region {
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	return []vfiouser.Region{
		vfiouser.RegionBAR0:   {Size: 4096, Flags: rw},
		vfiouser.RegionConfig: {Size: vfiouser.ConfigSpaceSize, Flags: rw},
	}
}

func (c *counter) IRQs() [vfiouser.NumIRQs]uint32 {
	return [vfiouser.NumIRQs]uint32{vfiouser.IRQMSIX: 1}
}

func (c *counter) ReadRegion(index vfiouser.RegionIndex, off uint64, p []byte) error {
	switch {
	case index == vfiouser.RegionConfig:
		c.config.Read(off, p)
	case off == 0 && len(p) == 4:
		binary.LittleEndian.PutUint32(p, c.value)
	}
	return nil // what is not there reads as 0
}

func (c *counter) WriteRegion(index vfiouser.RegionIndex, off uint64, p []byte) error {
	switch {
	case index == vfiouser.RegionConfig:
		c.config.Write(off, p)
	case off == 0 && len(p) == 4:
		c.value += binary.LittleEndian.Uint32(p)
	}
	return nil
}

func (c *counter) Replied()                         { c.session.Trigger(vfiouser.IRQMSIX, 0) }
func (c *counter) MapDMA(vfiouser.DMAMap) error     { return nil } // it does no DMA
func (c *counter) UnmapDMA(addr, size uint64) error { return nil }
func (c *counter) UnmapAllDMA() error               { return nil }
func (c *counter) Reset() error                     { c.value = 0; return nil }
func (c *counter) Close()                           {}

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "counter.sock")

	listener, err := vfiouser.Listen(path, 0o600)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := vfiouser.NewServer(listener, vfiouser.Config{Open: openCounter})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- server.Serve(ctx) }()

	// In real life: qemu-system-x86_64 ... -device
	//   '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"counter.sock"}}'
	guest(path)

	stop()
	fmt.Println("served:", <-done)
	// Output:
	// counted: 3
	// served: <nil>
}

// guest does what a virtual machine does when its driver writes 1 and 2 to the register and reads it.
func guest(path string) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	request(conn, 1, make([]byte, 4)) // VERSION 0.0
	access := binary.NativeEndian.AppendUint32(make([]byte, 12), 4)
	request(conn, 10, append(access, 1, 0, 0, 0)) // REGION_WRITE
	request(conn, 10, append(access, 2, 0, 0, 0))
	got := request(conn, 9, access) // REGION_READ
	fmt.Println("counted:", binary.LittleEndian.Uint32(got[len(access):]))
}

// request sends a message and returns the payload of the answer.
func request(conn net.Conn, command uint16, payload []byte) []byte {
	header := binary.NativeEndian.AppendUint16([]byte{0, 0}, command)
	header = binary.NativeEndian.AppendUint32(header, uint32(16+len(payload)))
	header = append(header, make([]byte, 8)...)
	if _, err := conn.Write(append(header, payload...)); err != nil {
		panic(err)
	}
	if _, err := io.ReadFull(conn, header); err != nil {
		panic(err)
	}
	if errno := binary.NativeEndian.Uint32(header[12:]); errno != 0 {
		panic(unix.Errno(errno))
	}
	answer := make([]byte, binary.NativeEndian.Uint32(header[4:])-16)
	if _, err := io.ReadFull(conn, answer); err != nil {
		panic(err)
	}
	return answer
}

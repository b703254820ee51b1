// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

// Two guests exchange data by one memory copy.
func ExampleCopy() {
	d := guestmem.NewDomain()
	alice, bob := d.NewSpace("alice"), d.NewSpace("bob")
	defer alice.Close()
	defer bob.Close()
	// A front-end sends file descriptors and calls Map; here the memory is Go's.
	_ = alice.MapBytes(0x1000, make([]byte, 2*guestmem.PageSize), guestmem.ProtRead)
	_ = bob.MapBytes(0x8000, make([]byte, guestmem.PageSize), guestmem.ProtRead|guestmem.ProtWrite)

	src, _ := alice.Pin([]uint64{0x2000, 0x1000}, guestmem.ProtRead)
	dst, _ := bob.Pin([]uint64{0x8000}, guestmem.ProtRead|guestmem.ProtWrite)
	defer src.Release()
	defer dst.Release()

	fmt.Println(guestmem.Copy(dst, 0, src, 64, 128))
	fmt.Println(guestmem.Copy(src, 0, dst, 0, 128))
	// Output:
	// <nil>
	// copy destination: guest "alice": access 0x80 bytes at offset 0x0 of 0x2000 pinned bytes: page list was pinned without write access: bad address
}

// A visit of an owner thread is guarded once, however many words it loads.
func ExampleDomain_Recover() {
	d := guestmem.NewDomain()
	s := d.NewSpace("alice")
	defer s.Close()
	fd, _ := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	defer unix.Close(fd)
	_ = unix.Ftruncate(fd, guestmem.PageSize)
	_ = s.Map(0, guestmem.PageSize, fd, 0, guestmem.ProtRead|guestmem.ProtWrite)
	ring, _ := s.Pin([]uint64{0}, guestmem.ProtRead|guestmem.ProtWrite)
	defer ring.Release()

	visit := func() (err error) {
		defer d.Recover(&err)
		_, err = ring.Load32(8)
		return err
	}
	guestmem.PrepareGoroutine()
	fmt.Println(visit())

	_ = unix.Ftruncate(fd, 0) // the front-end takes its memory away
	var fault *guestmem.FaultError
	if errors.As(visit(), &fault) {
		fmt.Printf("reset guest %s: its memory at %#x is gone\n", fault.Owner, fault.Addr)
	}
	// Output:
	// <nil>
	// reset guest alice: its memory at 0x8 is gone
}

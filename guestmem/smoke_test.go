// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

func TestSmoke(t *testing.T) {
	d := guestmem.NewDomain()
	s := d.NewSpace("vm1")
	fd, _ := unix.MemfdCreate("ram", 0)
	unix.Ftruncate(fd, 1<<20)
	if err := s.Map(0, 1<<20, fd, 0, 3); err != nil {
		t.Fatal(err)
	}
	p, err := s.Pin([]uint64{0, 4096, 0x8000}, 3)
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.Pin([]uint64{0x10000, 0x11000, 0x12000}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(4090, []byte("hello world")); err != nil {
		t.Fatal(err)
	}
	if err := guestmem.Copy(q, 0, p, 4090, 11); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 11)
	if err := s.Read(0x10000, b); err != nil || string(b) != "hello world" {
		t.Fatal(err, string(b))
	}
	t.Log(testing.AllocsPerRun(100, func() { _ = guestmem.Copy(q, 0, p, 4090, 8000) }))
	t.Log(testing.AllocsPerRun(100, func() { _ = guestmem.Copy(q, 0, s, 4090, 8000) }))
	unix.Ftruncate(fd, 0)
	err = guestmem.Copy(q, 0, p, 4090, 11)
	var fe *guestmem.FaultError
	if !errors.As(err, &fe) {
		t.Fatal(err)
	}
	t.Log(err)
	func() {
		guestmem.PrepareGoroutine()
		defer d.Recover(&err)
		p.Store32(0, 1)
	}()
	t.Log(err)
	s.Close()
	t.Log(p.Store32(0, 1))
}

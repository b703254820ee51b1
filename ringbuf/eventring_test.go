// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/ringbuf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func mustEventRing(t testing.TB, slots uint32) ringbuf.EventRing {
	t.Helper()
	r, err := ringbuf.NewEventRing(slots)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What the Linux driver's rings come to: three pages of 8-byte events and of 4-byte notifications.
func TestTheDriversOwnRings(t *testing.T) {
	for _, c := range []struct {
		name                  string
		slots, capacity       uint32
		event, slotOfTheEvent uint32
	}{
		{"asynchronous events", 3 * 4096 / 8, 512, 600, 88},
		{"completion notifications", 3 * 4096 / 4, 1024, 1500, 476},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mustEventRing(t, c.slots)
			if r.Slots() != c.slots || r.Capacity() != c.capacity {
				t.Fatalf("%d slots, capacity %d, want %d", r.Slots(), r.Capacity(), c.capacity)
			}
			idx := uint32(0)
			for n := range 2 * c.capacity {
				if n == c.event && r.Slot(idx) != c.slotOfTheEvent {
					t.Errorf("event %d is in slot %d, want %d", n, r.Slot(idx), c.slotOfTheEvent)
				}
				idx = r.Inc(idx)
			}
			if idx != 0 {
				t.Errorf("after %d events the index is %d", 2*c.capacity, idx)
			}
			if !r.Full(c.capacity, 0) || r.Full(c.capacity-1, 0) || !r.Full(0, c.capacity) {
				t.Errorf("full at something else than %d entries", c.capacity)
			}
		})
	}
}

func TestTheNumberOfSlotsIsLimited(t *testing.T) {
	for _, n := range []uint32{0, ringbuf.MaxEventSlots + 1, 1 << 31, 1<<32 - 1} {
		if _, err := ringbuf.NewEventRing(n); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%d slots: %v", n, err)
		}
	}
	if r := mustEventRing(t, ringbuf.MaxEventSlots); r.Capacity() != ringbuf.MaxEventSlots {
		t.Errorf("capacity %d", r.Capacity())
	}
}

// The device fills, the driver empties: for every number of slots, once around and a bit.
func TestTheDriverReadsWhatTheDeviceWrites(t *testing.T) {
	sizes := []uint32{1536, 3072, 2560, 3584, 4608, 512 * 63, 1024 * 255}
	for n := uint32(1); n < 300; n++ {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		r, d := mustEventRing(t, n), driver{n: n}
		slots := make([]uint32, n)
		prod, written, read := uint32(0), uint32(0), uint32(0)
		for range 5 {
			for !r.Full(prod, d.cons) {
				written++
				slots[r.Slot(prod)] = written
				prod = r.Inc(prod)
				d.prod = prod
			}
			if pending, ok := r.Pending(prod, d.cons); !ok || pending != r.Capacity() || written-read != r.Capacity() {
				t.Fatalf("%d slots: full with %d entries of %d (%d, %v)", n, written-read, r.Capacity(), pending, ok)
			}
			for k := uint32(0); k < r.Capacity()-r.Capacity()/3; k++ {
				ok, slot := d.hasData()
				if ok != 1 {
					t.Fatalf("%d slots: the driver sees no data with %d entries outstanding", n, written-read)
				}
				read++
				if slots[slot] != read {
					t.Fatalf("%d slots: the driver reads entry %d, want %d", n, slots[slot], read)
				}
				d.inc(&d.cons)
			}
		}
		for ok, slot := d.hasData(); ok == 1; ok, slot = d.hasData() {
			read++
			if slots[slot] != read {
				t.Fatalf("%d slots: the driver reads entry %d, want %d", n, slots[slot], read)
			}
			d.inc(&d.cons)
		}
		if read != written || !r.Empty(prod, d.cons) {
			t.Fatalf("%d slots: the driver stopped after %d of %d entries", n, read, written)
		}
	}
}

func TestIndicesThatNoDriverProducesAreRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint32Range(1, 5000).Draw(t, "slots")
		r, err := ringbuf.NewEventRing(n)
		if err != nil {
			t.Fatal(err)
		}
		idx, d := rapid.Uint32Range(0, 4*n).Draw(t, "index"), driver{n: n}
		produced := false
		for i, steps := uint32(0), uint32(0); steps < 2*n && !produced; steps++ {
			produced = i == idx
			d.inc(&i)
		}
		if r.Valid(idx) != produced {
			t.Fatalf("%d slots: Valid(%#x) is %v, the driver produces it: %v", n, idx, r.Valid(idx), produced)
		}
		if _, ok := r.Pending(0, idx); ok && !produced {
			t.Fatalf("%d slots: Pending accepts %#x", n, idx)
		}
		prod, cons := rapid.Uint32Range(0, 2*r.Capacity()-1).Draw(t, "prod"), rapid.Uint32Range(0, 2*r.Capacity()-1).Draw(t, "cons")
		want := (prod + 2*r.Capacity() - cons) % (2 * r.Capacity())
		if got, ok := r.Pending(prod, cons); ok != (want <= r.Capacity()) || (ok && got != want) {
			t.Fatalf("%d slots: Pending(%d, %d) is %d, %v, want %d", n, prod, cons, got, ok, want)
		}
	})
}

// A device that reports and a driver that reads, in any rhythm and from anywhere in the ring, against a list. The driver's
// own two rings are among them, with their ends of 512 and 1,024 entries as likely as any other place.
func TestADriverReadsWhatADeviceReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.OneOf(rapid.SampledFrom([]uint32{1536, 3072}), rapid.Uint32Range(1, 40)).Draw(t, "slots")
		r, err := ringbuf.NewEventRing(slots)
		if err != nil {
			t.Fatal(err)
		}
		start := (2*r.Capacity() - rapid.Uint32Range(0, 40).Draw(t, "steps before the end")%(2*r.Capacity())) % (2 * r.Capacity())
		d, prod := driver{n: slots, prod: start, cons: start}, start
		memory, next := make([]uint32, slots), uint32(0)
		var queue []uint32
		t.Repeat(map[string]func(*rapid.T){
			"report": func(t *rapid.T) {
				for range rapid.IntRange(1, int(r.Capacity())).Draw(t, "events") {
					if full := r.Full(prod, d.cons); full != (len(queue) == int(r.Capacity())) {
						t.Fatalf("Full is %v with %d of %d outstanding", full, len(queue), r.Capacity())
					} else if full {
						return
					}
					next++
					memory[r.Slot(prod)] = next
					queue = append(queue, next)
					prod = r.Inc(prod)
					d.prod = prod
				}
			},
			"read": func(t *rapid.T) {
				for range rapid.IntRange(1, int(r.Capacity())).Draw(t, "events") {
					ok, slot := d.hasData()
					if ok == invalid || (ok == 1) != (len(queue) > 0) {
						t.Fatalf("the driver sees data: %d, with %d outstanding", ok, len(queue))
					}
					if ok == 0 {
						return
					}
					if memory[slot] != queue[0] {
						t.Fatalf("the driver reads event %d, want %d", memory[slot], queue[0])
					}
					queue = queue[1:]
					d.inc(&d.cons)
				}
			},
			"": func(t *rapid.T) {
				if n, ok := r.Pending(prod, d.cons); !ok || int(n) != len(queue) || r.Empty(prod, d.cons) != (n == 0) {
					t.Fatalf("Pending is %d, %v; %d are outstanding", n, ok, len(queue))
				}
			},
		})
	})
}

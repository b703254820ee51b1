// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"encoding/binary"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

// statesForAReset are the states between which a register access makes a difference, and those that a message of the
// client or a failure can leave behind.
func statesForAReset() map[string]func(d *driver) {
	all := states()
	maps.Copy(all, map[string]func(d *driver){
		"half of the shared region's address written": func(d *driver) { d.reg(abi.RegDSRLow, 0xfffff000) },
		"interrupts masked and an error shown": func(d *driver) {
			d.reg(abi.RegIMR, 0xffffffff)
			wantERR(d.t, "no control at all", d.ctl(99), unix.EINVAL)
		},
		"active with objects": func(d *driver) {
			d.probe()
			d.queuePair()
			d.onWorker(func() { d.s.events.CQEvent(1) })
		},
		"a command copied and not executed": func(d *driver) {
			d.probe()
			d.command0()
			if err := d.s.WriteRegion(vfiouser.RegionBAR1, abi.RegRequest, make([]byte, 4)); err != nil {
				d.t.Fatal(err)
			}
		},
		"a doorbell rung and not served": func(d *driver) {
			d.probe()
			d.queuePair()
			bell := binary.LittleEndian.AppendUint32(nil, abi.UARQPSend|1)
			if err := d.s.WriteRegion(vfiouser.RegionBAR2, abi.UARQPOffset, bell); err != nil {
				d.t.Fatal(err)
			}
		},
		"bus mastering taken away": func(d *driver) {
			d.probe()
			d.queuePair()
			d.config(pciCommand, 2, pciCommandMemory)
		},
		"failed": func(d *driver) {
			d.probe()
			d.fail()
			d.s.failures.Wait()
		},
		"reset by the machine a moment ago": func(d *driver) {
			d.probe()
			if err := d.s.Reset(); err != nil {
				d.t.Fatal(err)
			}
		},
	})
	return all
}

func TestTheMachinesResetIsAPowerOnInEveryState(t *testing.T) {
	for state, reach := range statesForAReset() {
		for _, mode := range []DoorbellMode{Poll, Trap} {
			t.Run(state, func(t *testing.T) {
				fresh := attach(t, mode)
				fresh.config(pciCommand, 2, 0)
				d := attach(t, mode)
				reach(d)

				if err := d.s.Reset(); err != nil {
					t.Fatal(err)
				}

				before := d.snapshot()
				d.interrupts()
				for _, r := range []struct {
					index vfiouser.RegionIndex
					size  int
				}{{vfiouser.RegionBAR0, 64}, {vfiouser.RegionBAR1, bar1Size}, {vfiouser.RegionConfig, configSize}} {
					if diff := cmp.Diff(fresh.load(r.index, 0, r.size), d.load(r.index, 0, r.size)); diff != "" {
						t.Errorf("%s (-power on +got):\n%s", r.index, diff)
					}
				}
				if d.s.dev.Active() || d.s.mem.Enabled() || d.s.mem.Stats().Pinned != 0 || d.engine.contexts() != 0 {
					t.Errorf("active %v, memory access %v, %d pinned pages, %d contexts",
						d.s.dev.Active(), d.s.mem.Enabled(), d.s.mem.Stats().Pinned, d.engine.contexts())
				}
				d.s.Replied()
				d.onWorker(func() {})
				d.unchanged(before, "after the machine's reset")
				if n := d.interrupts(); n != [3]int64{} {
					t.Errorf("interrupts %v", n)
				}
				d.config(pciCommand, 2, pciCommandMaster)
				d.probe() // the memory is still mapped
				if qp, _ := d.queuePair(); qp != 1 {
					t.Errorf("the first queue pair of the new start has handle %d", qp)
				}
			})
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

func memfd(t *testing.T, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("spine", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

// A process has 65,530 mappings, and ends if it needs one more. No guest may come near that.
func TestAGuestCannotUseUpTheDaemonsMappings(t *testing.T) {
	const enough = 5000
	d := startDaemon(t, "poll")
	n := d.neighbour()
	g := d.guest("a")
	count := 0
	for ; count < enough; count++ {
		fd := memfd(t, 4096)
		err := g.Func.MapDMA(vfio.DMAMap{Addr: elsewhere + uint64(count)*8192, Size: 4096, FD: fd, Flags: 3})
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			if !errors.Is(err, unix.ENOMEM) {
				t.Errorf("map %d: %v, want ENOMEM", count, err)
			}
			break
		}
	}
	if count < 100 || count == enough {
		t.Errorf("%d files could be mapped", count)
	}
	n.check()
	g.Kill() // with all of it mapped
	d.served(t)
}

func TestMemoryBeyondAllBoundsIsRefused(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	g := d.guest("a")
	sealed := memfd(t, 1<<20)
	if _, err := unix.FcntlInt(uintptr(sealed), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sealed)
	small := memfd(t, 4096)
	defer unix.Close(small)
	for name, m := range map[string]vfio.DMAMap{
		"2^46 bytes":               {Addr: elsewhere, Size: 1 << 46, FD: small, Flags: 3},
		"2^63 bytes":               {Addr: elsewhere, Size: 1 << 63, FD: small, Flags: 3},
		"an offset of 2^63":        {Addr: elsewhere, Size: 4096, Offset: 1 << 63, FD: small, Flags: 3},
		"an offset that wraps":     {Addr: elsewhere, Size: 8192, Offset: 1<<64 - 4096, FD: small, Flags: 3},
		"sealed against writing":   {Addr: elsewhere, Size: 1 << 20, FD: sealed, Flags: 3},
		"more than the file has":   {Addr: elsewhere, Size: 1 << 20, FD: small, Flags: 3},
		"a file of another offset": {Addr: elsewhere, Size: 4096, Offset: 1 << 30, FD: small, Flags: 3},
	} {
		if err := g.Func.MapDMA(m); err != nil {
			continue // refused, or known and not reachable: both are well
		}
		if err := g.Dev.WriteDSR(m.Addr + m.Size - 4096); err != nil {
			t.Fatal(err)
		}
		if err := activate(g); err == nil {
			t.Errorf("%s: a shared region there activates", name)
		}
		if err := g.Func.UnmapDMA(m.Addr, m.Size); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		g.Reboot()
	}
	n.check()
}

// What a client passes for an eventfd is written to by the thread that serves all guests.
func TestAnEventfdThatBlocksDoesNotHoldUpTheOtherGuest(t *testing.T) {
	full, err := unix.Eventfd(0, unix.EFD_CLOEXEC) // its writers wait when the counter is full
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(full)
	if _, err := unix.Write(full, binary.NativeEndian.AppendUint64(nil, 1<<64-2)); err != nil {
		t.Fatal(err)
	}
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = unix.Write(pipe[1], make([]byte, 4096))
	}
	if err := unix.SetNonblock(pipe[1], false); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	for name, fd := range map[string]int{"a full eventfd": full, "a full pipe": pipe[1]} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, d *daemon) {
				n := d.neighbour()
				g := d.guest("a")
				e := g.Open().Endpoint(testguest.Shape{})
				e.ConnectTo(e.Address())
				if err := g.Func.SetIRQs(triggerFD, msix, 2, 1, fd); err != nil {
					var refused *vfio.ReplyError
					if !errors.As(err, &refused) {
						t.Fatal(err)
					}
				}
				for range 5 {
					arm(t, e.SendCQ, false)
					e.Sent(e.Write(e.Address(), 0, 8), "SUCCESS")
					time.Sleep(10 * time.Millisecond)
				}
				n.check()
				if longest := n.flow.Longest(); longest > 2*d.soon() {
					t.Errorf("a message of the other guest took %v", longest)
				}
				g.Kill()
			})
		})
	}
}

func TestBothGuestsResetAtTheSameTimeUnderTraffic(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		ga, gb := d.guest("a"), d.guest("b")
		for range 8 {
			x, y := ga.Open().Endpoint(testguest.Shape{Bytes: 4 * stormSize, Depth: 32}),
				gb.Open().Endpoint(testguest.Shape{Bytes: 4 * stormSize, Depth: 32})
			testguest.Connect(x, y)
			there, back := startStorm(x, y.Address()), startStorm(y, x.Address())
			time.Sleep(2 * time.Millisecond)
			var wg sync.WaitGroup
			for _, g := range []*testguest.Guest{ga, gb} {
				wg.Go(func() {
					if err := g.Dev.WriteReg("PVRDMA_REG_CTL", g.Const("PVRDMA_DEVICE_CTL_RESET")); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			there.quit.Store(true) // neither hears of its requests any more
			back.quit.Store(true)
			there.wg.Wait()
			back.wg.Wait()
			ga.Reboot()
			gb.Reboot()
		}
		d.exchangeAfter(ga, gb)
	})
}

// Commands of any kind with numbers that are sometimes right, from a guest that has objects for them to hit.
func TestRandomCommandsDoNoHarm(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		r := newGround(t, d)
		r.e.ConnectTo(r.e.Address())
		rng := rand.New(rand.NewPCG(21, 22))
		done := map[bool]int{}
		for range 4000 {
			req := randomRequest(r, rng)
			_, err := r.g.Dev.Post(req, "random", 0)
			var failed *driver.CommandError
			if err != nil && !errors.As(err, &failed) {
				t.Fatal(err)
			}
			done[err == nil]++
			if rng.IntN(200) == 0 {
				ringEverything(t, r.g)
			}
		}
		t.Logf("%d commands succeeded, %d failed", done[true], done[false])
		if done[true] == 0 || done[false] == 0 {
			t.Error("the commands are all of one kind")
		}
		r.g.Reboot()
		d.exchangeAfter(r.g, n.flow.From.P.G)
		n.check()
	})
}

// randomRequest is a command slot whose words are handles, sizes, addresses of directories, or anything.
func randomRequest(r *ground, rng *rand.Rand) []byte {
	req := r.g.L.New("pvrdma_cmd_req")
	b := req.Bytes()
	for i := 0; i < len(b); i += 4 {
		v := rng.Uint32()
		switch rng.IntN(8) {
		case 0, 1, 2, 3:
			v %= 5
		case 4:
			v = 1 << (v % 32)
		case 5, 6:
			v = 0
		}
		binary.LittleEndian.PutUint32(b[i:], v)
	}
	if rng.IntN(4) != 0 { // most commands with memory have their directory here
		binary.LittleEndian.PutUint64(b[r.g.L.Field("pvrdma_cmd_create_cq", "pdir_dma").Offset:], r.dir.Addr())
	}
	return req.Set("hdr.cmd", uint64(rng.Uint32N(r.g.Const("PVRDMA_CMD_MAX")+1))).Bytes()
}

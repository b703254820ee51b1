// SPDX-License-Identifier: Apache-2.0

//go:build vm

// Package spine holds the tests that must never break: stock guests, with the unmodified driver and the unmodified
// rdma-core, exchange data through the daemon, and keep their right to be reset, rebooted and killed at any time.
package spine

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// TestStockGuestsExchangeDataWhateverHappensToThem runs the whole story once for each way in which a guest's stores reach
// the daemon.
func TestStockGuestsExchangeDataWhateverHappensToThem(t *testing.T) {
	for _, doorbells := range []string{"poll", "trap"} {
		for _, noPosted := range []bool{false, true} {
			name := doorbells + " doorbells"
			if noPosted {
				name += " without posted writes"
			}
			t.Run(name, func(t *testing.T) {
				wholeStory(t, bed.Options{Doorbells: doorbells, NoPostedWrites: noPosted})
			})
		}
	}
	t.Run("a worker for each guest", func(t *testing.T) { wholeStory(t, bed.Options{Doorbells: "poll", Workers: 2}) })
}

func wholeStory(t *testing.T, o bed.Options) {
	w := makeWorld(t, o)
	w.LoadDrivers(t)
	w.tellsWhatItCanDo(t)
	w.pingpongs(t)
	w.comparesEveryByte(t)
	w.refusesWhatIsWrong(t)
	w.followsItsOperator(t)
	w.CheckKernelLogs(t)
	w.CheckDaemon(t)
	w.survivesAnUnload(t)
	w.survivesAReset(t)
	w.survivesAKill(t)
	w.CheckKernelLogs(t)
	w.stops(t)
}

// tellsWhatItCanDo compares what the guest's library reports with the configuration, and with what is not there yet.
func (w *world) tellsWhatItCanDo(t *testing.T) {
	t.Helper()
	out := w.Output(t, 0, 20*time.Second, "ibv_devinfo -v")
	for _, want := range []string{
		`hca_id:\s+vmw_pvrdma0`, `state:\s+PORT_ACTIVE`, `active_mtu:\s+4096`, `link_layer:\s+Ethernet`,
		fmt.Sprintf(`max_qp:\s+%d\s`, bed.MaxQP), fmt.Sprintf(`max_cq:\s+%d\s`, bed.MaxCQ),
		fmt.Sprintf(`max_mr:\s+%d\s`, bed.MaxMR), fmt.Sprintf(`max_pd:\s+%d\s`, bed.MaxPD),
		`node_guid:\s+` + bed.GUID(0), `sys_image_guid:\s+` + bed.GUID(0), `max_mr_size:\s+0x40000000`,
		`atomic_cap:\s+ATOMIC_HCA`, `MEM_MGT_EXTENSIONS`, fmt.Sprintf(`max_srq:\s+%d\s`, bed.MaxSRQ), `max_srq_wr:\s+4096\s`, `max_mw:\s+0\s`, `max_sge:\s+16\s`, `max_qp_wr:\s+4096\s`,
		`max_pkeys:\s+1\s`, `phys_port_cnt:\s+1\s`,
	} {
		if !regexp.MustCompile(want).MatchString(out + "\n") {
			t.Errorf("ibv_devinfo -v has no line like %q:\n%s", want, out)
		}
	}
}

// pingpongs runs the library's own program from one byte to a megabyte, polled and with events.
func (w *world) pingpongs(t *testing.T) {
	t.Helper()
	for _, size := range []int{1, 64, 4096, 65536, 1 << 20} {
		iterations := 200
		if size > 65536 {
			iterations = 50
		}
		for _, events := range []string{"", " -e"} {
			w.pingpong(t, fmt.Sprintf("-s %d -n %d%s", size, iterations, events))
		}
	}
}

// comparesEveryByte runs the payload check: between the guests, polled and with events, and within one guest.
func (w *world) comparesEveryByte(t *testing.T) {
	t.Helper()
	w.pvcheck(t, "-o all -n 600")
	w.pvcheck(t, "-o all -n 300 -e")
	w.pvcheck(t, "-o all -n 300 -u 8 -q 32 -m 65536")
	w.pvcheck(t, "-o all -n 300 --srq")
	w.pvcheck(t, "-o all -n 300 --srq -e")
	w.Output(t, 0, time.Minute, "pvcheck --self -o all -n 300")
	w.Output(t, 1, time.Minute, "pvcheck --self -o all -n 300 -e")
}

// refusesWhatIsWrong runs the protection checks: keys, bounds, rights, RNR, flush and RESET.
func (w *world) refusesWhatIsWrong(t *testing.T) {
	t.Helper()
	w.pvcheck(t, "--errors")
	w.pvcheck(t, "--errors --srq")
}

// underTraffic starts a payload check that goes on for longer than anybody waits, lets it run, and then does something to
// guest 0. The other guest must end with "the other side is gone", having seen nothing wrong until then.
func (w *world) underTraffic(t *testing.T, do func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	_, client := w.StartPvcheck(t, ctx, aAndB, "-t 600")
	before := w.Messages(t)
	const patience = harness.Slow * 20 * time.Second
	for deadline := time.Now().Add(patience); w.Messages(t) < before+100; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			stdout, stderr := client.Output()
			t.Fatalf("no traffic after %v\n%s%s", patience, stdout, stderr)
		}
	}
	do(ctx)
	if r := stage.Wait(t, ctx, client); r.Status != stage.CheckLost {
		t.Errorf("client ended with status %d, want %d (lost)\n%s%s", r.Status, stage.CheckLost, r.Stdout, r.Stderr)
	}
}

// worksAgain loads the driver in guest 0 and runs a short check between the guests.
func (w *world) worksAgain(t *testing.T) {
	t.Helper()
	w.LoadDriver(t, 0)
	w.pvcheck(t, "-n 200")
	w.CheckDaemon(t)
}

// survivesAnUnload takes the driver away from a guest whose peer goes on sending.
func (w *world) survivesAnUnload(t *testing.T) {
	t.Helper()
	w.underTraffic(t, func(context.Context) {
		w.Output(t, 0, 30*time.Second, "pkill -KILL pvcheck; modprobe -r vmw_pvrdma")
	})
	w.worksAgain(t)
}

// survivesAReset resets a virtual machine in the middle of its traffic.
func (w *world) survivesAReset(t *testing.T) {
	t.Helper()
	w.underTraffic(t, func(ctx context.Context) {
		if err := w.Guests[0].Reset(ctx); err != nil {
			t.Fatal(err)
		}
	})
	w.worksAgain(t)
}

// survivesAKill kills QEMU in the middle of traffic and starts it again on the same socket.
func (w *world) survivesAKill(t *testing.T) {
	t.Helper()
	w.underTraffic(t, func(ctx context.Context) {
		w.Guests[0].Kill()
		w.Guests[0].Close()
		if err := w.Boot(ctx, 0); err != nil {
			t.Fatal(err)
		}
	})
	w.worksAgain(t)
}

// stops ends the daemon while both guests are attached.
func (w *world) stops(t *testing.T) {
	t.Helper()
	took, err := w.Daemon.Stop()
	if err != nil {
		t.Error(err)
	}
	t.Logf("pvrdmad ended %v after SIGTERM", took)
}

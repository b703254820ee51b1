// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

func TestTheDaemonEndsInTimeWhileGuestsAreBusy(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b, s := d.stormGuests()
		wantMoving(t, a.MR.Mem)
		began := time.Now()
		d.stop()
		t.Logf("it took %v", time.Since(began))
		d.done <- nil // for the stop that comes with the end of the test
		s.quit.Store(true)
		s.wg.Wait() // a guest whose device is gone waits in vain, and that is all
		a.P.G.Kill()
		b.P.G.Kill()
	})
}

// cpuTime is what the daemon has used so far.
func (d *daemon) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime, proc_pid_stat(5)
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	const tick = 10 * time.Millisecond
	return time.Duration(ticks) * tick
}

// usesLittle looks for a second in which the daemon used little: what else the machine does makes a second dearer, and no
// spinning worker cheaper.
func (d *daemon) usesLittle(t *testing.T) {
	t.Helper()
	const idle, looks = time.Second, 5
	limit := idle / 20 // the aim is 1 %, in ticks of 10 ms on a busy machine
	if raceEnabled {
		limit = idle / 5
	}
	least := idle
	for n := 0; n < looks && least > limit; n++ {
		before := d.cpuTime(t)
		time.Sleep(idle)
		least = min(least, d.cpuTime(t)-before)
	}
	if least > limit {
		t.Errorf("the daemon used %v of %v with two idle guests, want at most %v", least, idle, limit)
	}
}

func TestIdleGuestsCostLittleAndWakeSoon(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{Mode: verbs.Events})
		for range 20 { // more doorbell pages to look at
			a.P.G.Open()
		}
		time.Sleep(200 * time.Millisecond)
		d.usesLittle(t)
		for range 5 {
			time.Sleep(50 * time.Millisecond)
			began := time.Now()
			recv := b.Recv(0, 64)
			a.Sent(a.Send(0, 64), "SUCCESS")
			b.Received(recv, "SUCCESS")
			if took := time.Since(began); took > d.soon() {
				t.Errorf("a message after a pause took %v", took)
			}
		}
	})
}

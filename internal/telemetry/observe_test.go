// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

// newTelemetry returns telemetry that logs to out, which is complete once the returned function was called.
func newTelemetry(t *testing.T, out io.Writer) (*Telemetry, func()) {
	t.Helper()
	log := NewLog(LogConfig{Level: "debug", Journal: true, Output: out})
	done := func() { log.Close(closeTimeout) }
	t.Cleanup(done)
	return New(log, Build{Version: "v1", Revision: "abc", GoVersion: "go1"}), done
}

func TestEachEventIsOneCountAndOneLine(t *testing.T) {
	g := pvrdma.Guest{Name: "vm1"}
	tests := []struct {
		event pvrdma.Event
		line  string
		count string // a series with its value
	}{
		{
			pvrdma.CommandDone{Guest: g, Cmd: abi.CmdCreateQP, Duration: time.Millisecond},
			"<7>[DEBUG] pvrdmad: command done: guest=vm1 command=CREATE_QP duration=1ms",
			`pvrdma_commands_total{command="CREATE_QP",guest="vm1",result="ok"} 1`,
		},
		{
			pvrdma.CommandDone{Guest: g, Cmd: abi.CmdCreateQP, Err: fmt.Errorf("make\nit: %w", unix.ENOMEM)},
			`<4>[WARN]  pvrdmad: command failed: guest=vm1 command=CREATE_QP result=ENOMEM error="make\nit: cannot allocate memory"`,
			`pvrdma_commands_total{command="CREATE_QP",guest="vm1",result="ENOMEM"} 1`,
		},
		{
			pvrdma.CommandDone{Guest: g, Cmd: 4711, Err: errors.New("x")},
			`<4>[WARN]  pvrdmad: command failed: guest=vm1 command=UNKNOWN result=other error="x"`,
			`pvrdma_commands_total{command="UNKNOWN",guest="vm1",result="other"} 1`,
		},
		{
			pvrdma.Activated{Guest: g, DriverVersion: 20, Version: 17},
			"<6>[INFO]  pvrdmad: driver switched the device on: guest=vm1 driver_version=20 version=17",
			`pvrdma_guest_active{guest="vm1"} 1`,
		},
		{
			pvrdma.WasReset{Guest: g, Cause: pvrdma.ResetByVMM},
			"<6>[INFO]  pvrdmad: device reset: guest=vm1 cause=vmm",
			`pvrdma_guest_resets_total{cause="vmm",guest="vm1"} 1`,
		},
		{
			pvrdma.WasReset{Guest: g, Cause: pvrdma.ResetByFault, Err: unix.EFAULT},
			`<3>[ERROR] pvrdmad: device reset: guest=vm1 cause=fault error="bad address" ` +
				`next="reload vmw_pvrdma in the guest or reboot it"`,
			`pvrdma_guest_resets_total{cause="fault",guest="vm1"} 1`,
		},
		{
			pvrdma.WasReset{Guest: g, Cause: pvrdma.ResetByMemoryLoss, Err: unix.EFAULT},
			`<3>[ERROR] pvrdmad: device reset: guest=vm1 cause=memory_lost error="bad address" ` +
				`next="reload vmw_pvrdma in the guest or reboot it"`,
			`pvrdma_guest_resets_total{cause="memory_lost",guest="vm1"} 1`,
		},
		{
			pvrdma.WasReset{Guest: g, Cause: pvrdma.ResetByDriver, Err: unix.EIO},
			`<3>[ERROR] pvrdmad: device reset: guest=vm1 cause=driver error="input/output error"`,
			`pvrdma_guest_resets_total{cause="driver",guest="vm1"} 1`,
		},
		{
			pvrdma.WasReset{Guest: g, Cause: pvrdma.ResetByBusMaster},
			"<6>[INFO]  pvrdmad: device reset: guest=vm1 cause=bus_master_off",
			`pvrdma_guest_resets_total{cause="bus_master_off",guest="vm1"} 1`,
		},
		{
			pvrdma.ErrorStateChanged{Guest: g, State: pvrdma.ErrorMemoryLost},
			"",
			`pvrdma_guest_error_state{guest="vm1",state="memory_lost"} 1`,
		},
		{
			pvrdma.ErrorStateChanged{Guest: g, State: pvrdma.ErrorAlreadyActive, Err: errors.New("not probed")},
			`<3>[ERROR] pvrdmad: device cannot serve the guest: guest=vm1 state=already_active error="not probed" ` +
				`next="reload vmw_pvrdma in the guest or reboot it: the device does not go along when a virtual machine is ` +
				`migrated or goes back to a snapshot"`,
			`pvrdma_guest_error_state{guest="vm1",state="already_active"} 1`,
		},
		{
			pvrdma.ErrorStateChanged{Guest: g, State: pvrdma.ErrorNotEnabled, Err: errors.New("not enabled")},
			`<3>[ERROR] pvrdmad: device cannot serve the guest: guest=vm1 state=not_enabled error="not enabled" ` +
				`next="if the virtual machine is not paused, it was migrated or restored from a snapshot: reboot the guest, ` +
				`the device does not go along"`,
			`pvrdma_guest_error_state{guest="vm1",state="not_enabled"} 1`,
		},
		{
			pvrdma.Activated{Guest: g, DriverVersion: 20, Version: 20, VIOMMU: true},
			`<4>[WARN]  pvrdmad: driver switched the device on behind a virtual IOMMU: guest=vm1 driver_version=20 version=20 ` +
				`next="each page is a mapping of its own, 65535 at most: leave the virtual IOMMU out, or boot the guest's ` +
				`kernel with iommu=pt"`,
			`pvrdma_guest_viommu{guest="vm1"} 1`,
		},
		{
			pvrdma.CommandDone{Guest: g, Cmd: abi.CmdCreateBind, Err: fmt.Errorf("guest %q has it: %w", "vm2", unix.EADDRINUSE)},
			`<4>[WARN]  pvrdmad: address refused: guest=vm1 command=CREATE_BIND result=EADDRINUSE reason=in_use ` +
				`error="guest \"vm2\" has it: address already in use" ` +
				`next="give the vmxnet3 of each virtual machine a mac= of its own, as pvrdmad qemu-args prints it, and an IP ` +
				`address of its own"`,
			`pvrdma_gid_refusals_total{guest="vm1",reason="in_use"} 1`,
		},
		{
			pvrdma.CommandDone{Guest: g, Cmd: abi.CmdCreateBind, Err: fmt.Errorf("not listed: %w", unix.EPERM)},
			`<4>[WARN]  pvrdmad: address refused: guest=vm1 command=CREATE_BIND result=EPERM reason=not_listed ` +
				`error="not listed: operation not permitted" ` +
				`next="add the address to gids in the guest's file and restart the daemon, or take it from the guest's vmxnet3"`,
			`pvrdma_gid_refusals_total{guest="vm1",reason="not_listed"} 1`,
		},
		{
			pvrdma.CommandDone{Guest: g, Cmd: abi.CmdCreateBind, Err: unix.EINVAL},
			`<4>[WARN]  pvrdmad: command failed: guest=vm1 command=CREATE_BIND result=EINVAL error="invalid argument"`,
			`pvrdma_gid_refusals_total{guest="vm1",reason="in_use"} 0`,
		},
		{
			pvrdma.QPStateChanged{
				Guest: g, Handle: 3, QPN: 7, Type: hostverbs.QPTypeRC, From: hostverbs.StateInit, To: hostverbs.StateRTR,
				DestQPN: 9, DGID: hostverbs.GID{0: 0xfe, 1: 0x80, 15: 1},
			},
			"<7>[DEBUG] pvrdmad: queue pair changed state: guest=vm1 handle=3 qpn=7 type=RC from=INIT to=RTR dest_qpn=9 dgid=fe80::1",
			`pvrdma_qp_state_changes_total{guest="vm1",state="RTR"} 1`,
		},
		{
			pvrdma.QPStateChanged{Guest: g, From: hostverbs.StateRTS, To: 99},
			"<7>[DEBUG] pvrdmad: queue pair changed state: guest=vm1 handle=0 qpn=0 type=SMI from=RTS to=other",
			`pvrdma_qp_state_changes_total{guest="vm1",state="other"} 1`,
		},
		{
			pvrdma.AsyncEventSent{Guest: g, Type: abi.EventQPFatal, Info: 3},
			"<7>[DEBUG] pvrdmad: asynchronous event sent: guest=vm1 type=QP_FATAL info=3",
			`pvrdma_async_events_total{guest="vm1",result="sent",type="QP_FATAL"} 1`,
		},
		{
			pvrdma.AsyncEventSent{Guest: g, Type: 4711, Lost: true},
			"<4>[WARN]  pvrdmad: asynchronous event lost: guest=vm1 type=other info=0",
			`pvrdma_async_events_total{guest="vm1",result="lost",type="other"} 1`,
		},
		{
			pvrdma.GuestError{Guest: g, Reason: pvrdma.BadWQE, Err: unix.EINVAL},
			`<4>[WARN]  pvrdmad: guest broke a rule of the device: guest=vm1 reason=bad_wqe error="invalid argument"`,
			`pvrdma_guest_protocol_errors_total{guest="vm1",reason="bad_wqe"} 1`,
		},
		{
			pvrdma.GuestError{Guest: g, Reason: 200},
			`<4>[WARN]  pvrdmad: guest broke a rule of the device: guest=vm1 reason=unknown error=""`,
			`pvrdma_guest_protocol_errors_total{guest="vm1",reason="other"} 1`,
		},
		{
			pvrdmaEventOfTheFuture{g},
			"<4>[WARN]  pvrdmad: an event that has no metric: guest=vm1 type=telemetry.pvrdmaEventOfTheFuture",
			`pvrdma_guest_up{guest="vm1"} 0`,
		},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%T", tt.event), func(t *testing.T) {
			var out bytes.Buffer
			tel, done := newTelemetry(t, &out)
			tel.AddGuest(GuestInfo{Name: "vm1"}).Observe(tt.event)
			done()
			if diff := cmp.Diff(tt.line, strings.TrimSuffix(out.String(), "\n")); diff != "" {
				t.Errorf("log differs (-want +got):\n%s", diff)
			}
			if text := scrape(t, tel); !strings.Contains(text, tt.count+"\n") {
				t.Errorf("no series %s", tt.count)
			}
		})
	}
}

type pvrdmaEventOfTheFuture struct{ pvrdma.Guest }

func TestTheDoorsEventsAreCountedAndLogged(t *testing.T) {
	peer := vfiouser.Peer{PID: 77, UID: 64055, GID: 108}
	tests := []struct {
		name   string
		happen func(vfiouser.Observer)
		lines  string
		counts []string
	}{
		{
			"attached", func(o vfiouser.Observer) { o.Connected(peer) },
			"<6>[INFO]  pvrdmad: virtual machine attached: guest=vm1 pid=77 uid=64055 gid=108 write_multiple=false\n",
			[]string{`pvrdma_guest_up{guest="vm1"} 1`, `pvrdma_vfiouser_connections_total{guest="vm1"} 1`},
		},
		{
			"detached", func(o vfiouser.Observer) {
				o.Connected(peer)
				o.Disconnected(vfiouser.Disconnect{Peer: peer, Opened: true})
			},
			"<6>[INFO]  pvrdmad: virtual machine attached: guest=vm1 pid=77 uid=64055 gid=108 write_multiple=false\n" +
				"<6>[INFO]  pvrdmad: virtual machine detached: guest=vm1 pid=77 reason=client_closed\n",
			[]string{`pvrdma_guest_up{guest="vm1"} 0`, `pvrdma_vfiouser_disconnects_total{guest="vm1",reason="client_closed"} 1`},
		},
		{
			"a stranger left, the guest stays", func(o vfiouser.Observer) {
				o.Connected(peer)
				o.Disconnected(vfiouser.Disconnect{Reason: vfiouser.ReasonHandshake, Err: unix.ETIMEDOUT})
			},
			"<6>[INFO]  pvrdmad: virtual machine attached: guest=vm1 pid=77 uid=64055 gid=108 write_multiple=false\n" +
				`<4>[WARN]  pvrdmad: connection ended: guest=vm1 pid=0 reason=handshake error="connection timed out"` + "\n",
			[]string{`pvrdma_guest_up{guest="vm1"} 1`, `pvrdma_vfiouser_disconnects_total{guest="vm1",reason="handshake"} 1`},
		},
		{
			"somebody looked whether the socket is there", func(o vfiouser.Observer) { o.Disconnected(vfiouser.Disconnect{Peer: peer}) },
			"<6>[INFO]  pvrdmad: connection ended before it was a virtual machine's: guest=vm1 pid=77 reason=client_closed\n",
			[]string{`pvrdma_vfiouser_disconnects_total{guest="vm1",reason="client_closed"} 1`},
		},
		{
			"busy", func(o vfiouser.Observer) { o.BusyRefused(peer) },
			"<4>[WARN]  pvrdmad: connection refused, a virtual machine is attached: guest=vm1 pid=77 uid=64055\n",
			[]string{`pvrdma_vfiouser_busy_refusals_total{guest="vm1"} 1`},
		},
		{
			"refused", func(o vfiouser.Observer) {
				o.Refused(vfiouser.Refusal{Command: vfiouser.CommandDMAMap, Fault: vfiouser.FaultFDs, Err: unix.EINVAL, Fatal: true})
				o.Refused(vfiouser.Refusal{Command: 99, Fault: vfiouser.FaultAbsent, Err: unix.EOPNOTSUPP})
			},
			`<4>[WARN]  pvrdmad: message refused: guest=vm1 command=DMA_MAP fault=fds ends_session=true error="invalid argument"` + "\n" +
				`<7>[DEBUG] pvrdmad: message refused: guest=vm1 command=unknown fault=absent ends_session=false ` +
				`error="operation not supported"` + "\n",
			[]string{
				`pvrdma_guest_protocol_errors_total{guest="vm1",reason="vfiouser_fds"} 1`,
				`pvrdma_guest_protocol_errors_total{guest="vm1",reason="vfiouser_absent"} 1`,
			},
		},
		{
			"handled", func(o vfiouser.Observer) { o.Handled(vfiouser.Handling{Answer: 2 * time.Second}) }, "",
			[]string{
				`pvrdma_vfiouser_answer_duration_seconds_bucket{guest="vm1",le="5"} 1`,
				`pvrdma_vfiouser_answer_duration_seconds_bucket{guest="vm1",le="1"} 0`,
			},
		},
		{
			"panicked", func(o vfiouser.Observer) {
				o.Panicked(vfiouser.Panic{Command: vfiouser.CommandRegionRead, Value: "a\nb", Stack: []byte(strings.Repeat("s", 3000))})
			},
			`<3>[ERROR] pvrdmad: fault in the daemon, please report it: guest=vm1 command=REGION_READ panic="a\nb" stack="` +
				strings.Repeat("s", maxStackLen) + "\"\n",
			[]string{`pvrdma_guest_panics_total{guest="vm1"} 1`},
		},
		{
			"accept failed", func(o vfiouser.Observer) { o.AcceptFailed(unix.EMFILE, time.Second) },
			`<4>[WARN]  pvrdmad: connection not accepted: guest=vm1 error="too many open files" next_try_in=1s` + "\n",
			[]string{`pvrdma_vfiouser_accept_errors_total{guest="vm1"} 1`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			tel, done := newTelemetry(t, &out)
			tt.happen(tel.AddGuest(GuestInfo{Name: "vm1"}).Door())
			done()
			if diff := cmp.Diff(tt.lines, out.String()); diff != "" {
				t.Errorf("log differs (-want +got):\n%s", diff)
			}
			text := scrape(t, tel)
			for _, c := range tt.counts {
				if !strings.Contains(text, c+"\n") {
					t.Errorf("no series %s", c)
				}
			}
		})
	}
}

func TestTheListsOfReasonsAndCausesAreWhole(t *testing.T) {
	for name, got := range map[string]string{
		"the reason after the last": numGuestErrors.String(), "the cause after the last": numResetCauses.String(),
	} {
		if got != "unknown" {
			t.Errorf("%s is %q: telemetry does not know the new ones", name, got)
		}
	}
	for r := range numGuestErrors {
		if r.String() == "unknown" {
			t.Errorf("reason %d has no name", r)
		}
	}
}

func TestCommandsAndEventTypesHaveNamesNotNumbers(t *testing.T) {
	for c := range abi.CmdMax {
		if l := command(c); strings.HasPrefix(l, "0x") || l == commandUnknown {
			t.Errorf("command %d has the label %s", c, l)
		}
	}
	if l := command(abi.CmdMax); l != commandUnknown {
		t.Errorf("the first code that is no command has the label %s", l)
	}
	for e := range abi.EventGIDChange + 1 {
		if l := eventName(e); strings.HasPrefix(l, "0x") {
			t.Errorf("event %d has the label %s", e, l)
		}
	}
}

func TestAFloodOfWarningsAllocatesNothingPerEvent(t *testing.T) {
	tel, _ := newTelemetry(t, io.Discard)
	g := tel.AddGuest(GuestInfo{Name: "vm1"})
	var e pvrdma.Event = pvrdma.GuestError{Guest: pvrdma.Guest{Name: "vm1"}, Reason: pvrdma.BadWQE, Err: unix.EINVAL}
	for range 2 * loudBurst {
		g.Observe(e)
	}
	if n := testing.AllocsPerRun(1000, func() { g.Observe(e) }); n != 0 {
		t.Errorf("%v allocations for an event that is not logged", n)
	}
	if n := testutil.ToFloat64(g.guestErrors[pvrdma.BadWQE]); n != 2*loudBurst+1001 {
		t.Errorf("%v events counted, want %d", n, 2*loudBurst+1001)
	}
	if g.log.log.GetLevel() != hclog.Debug {
		t.Error("the guest's logger has not the daemon's level")
	}
}

func everything() (pvrdma.Counters, soft.Counters) {
	return pvrdma.Counters{SendWQEs: 1, RecvWQEs: 2, CQEs: 10, CQEErrors: 3, Doorbells: 5, Notifications: 6, WindowsDenied: 11},
		soft.Counters{Sends: 1, Writes: 2, Reads: 3, SendBytes: 4, WriteBytes: 5, ReadBytes: 6, Atomics: 12, AtomicBytes: 13, Registrations: 14, Invalidations: 15, RNRNAKs: 7, Retries: 8, Drops: [...]uint64{9, 8, 7, 6, 5, 4, 3, 2}, MemoryFaults: 10}
}

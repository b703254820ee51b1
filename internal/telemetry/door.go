// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// door observes a guest's vfio-user server.
type door struct{ g *Guest }

var _ vfiouser.Observer = door{}

// Connected implements vfiouser.Observer.
func (d door) Connected(p vfiouser.Peer) {
	d.g.up.Set(1)
	d.g.metrics.connections.WithLabelValues(d.g.name).Inc()
	d.g.log.emit(hclog.Info, "virtual machine attached", "pid", p.PID, "uid", p.UID, "gid", p.GID,
		"write_multiple", p.Capabilities.WriteMultiple)
}

// Disconnected implements vfiouser.Observer.
func (d door) Disconnected(e vfiouser.Disconnect) {
	if e.Opened {
		d.g.up.Set(0)
		d.g.active.Set(0)
	}
	d.g.metrics.disconnects.WithLabelValues(d.g.name, e.Reason.String()).Inc()
	args := []any{"pid", e.Peer.PID, "reason", e.Reason.String()}
	if e.Err != nil {
		args = append(args, "error", quoted(e.Err))
	}
	switch usual := e.Reason == vfiouser.ReasonClientClosed || e.Reason == vfiouser.ReasonShutdown; {
	case usual && e.Opened:
		d.g.log.emit(hclog.Info, "virtual machine detached", args...)
	case usual:
		// Whoever looks whether the socket is there connects and goes away.
		d.g.log.emit(hclog.Info, "connection ended before it was a virtual machine's", args...)
	default:
		d.g.log.emit(hclog.Warn, "connection ended", args...)
	}
}

// BusyRefused implements vfiouser.Observer.
func (d door) BusyRefused(p vfiouser.Peer) {
	d.g.metrics.busy.WithLabelValues(d.g.name).Inc()
	d.g.log.emit(hclog.Warn, "connection refused, a virtual machine is attached", "pid", p.PID, "uid", p.UID)
}

// Refused implements vfiouser.Observer. What the device refused is the device's own event too: GuestError or a failed
// command; it is counted here as a reason of its own.
func (d door) Refused(r vfiouser.Refusal) {
	d.g.metrics.protocolErrors.WithLabelValues(d.g.name, "vfiouser_"+r.Fault.String()).Inc()
	level := hclog.Warn
	if r.Fault == vfiouser.FaultAbsent {
		// A client may ask what there is; that there is not is no breach of anything.
		level = hclog.Debug
	}
	d.g.log.emit(level, "message refused", "command", r.Command.String(), "fault", r.Fault.String(),
		"ends_session", r.Fatal, "error", quoted(r.Err))
}

// Handled implements vfiouser.Observer.
func (d door) Handled(h vfiouser.Handling) { d.g.answerDuration.Observe(h.Answer.Seconds()) }

// maxStackLen bounds a panic's stack in a log line, in bytes: the frames that matter come first.
const maxStackLen = 2048

// Panicked implements vfiouser.Observer.
func (d door) Panicked(p vfiouser.Panic) {
	d.g.metrics.panics.WithLabelValues(d.g.name).Inc()
	stack := p.Stack
	if len(stack) > maxStackLen {
		stack = stack[:maxStackLen]
	}
	d.g.log.emit(hclog.Error, "fault in the daemon, please report it", "command", p.Command.String(),
		"panic", quoted(fmt.Errorf("%v", p.Value)), "stack", hclog.Quote(stack))
}

// AcceptFailed implements vfiouser.Observer.
func (d door) AcceptFailed(err error, pause time.Duration) {
	d.g.metrics.acceptErrors.WithLabelValues(d.g.name).Inc()
	d.g.log.emit(hclog.Warn, "connection not accepted", "error", quoted(err), "next_try_in", pause)
}

// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"net/netip"

	"github.com/hashicorp/go-hclog"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma"
)

// Observe implements pvrdma.Observer.
func (g *Guest) Observe(e pvrdma.Event) {
	switch e := e.(type) {
	case pvrdma.CommandDone:
		g.commandDone(e)
	case pvrdma.Activated:
		g.active.Set(1)
		g.log.emit(hclog.Info, "driver switched the device on", "driver_version", e.DriverVersion, "version", e.Version)
	case pvrdma.WasReset:
		g.wasReset(e)
	case pvrdma.QPStateChanged:
		g.qpStateChanged(e)
	case pvrdma.AsyncEventSent:
		g.asyncEventSent(e)
	case pvrdma.GuestError:
		g.guestError(e)
	default:
		g.log.emit(hclog.Warn, "an event that has no metric", "type", fmt.Sprintf("%T", e))
	}
}

func (g *Guest) commandDone(e pvrdma.CommandDone) {
	res := result(e.Err)
	g.metrics.commands.WithLabelValues(g.name, command(e.Cmd), res).Inc()
	g.commandDuration.Observe(e.Duration.Seconds())
	if e.Err != nil {
		g.log.emit(hclog.Warn, "command failed", "command", command(e.Cmd), "result", res, "error", quoted(e.Err))
		return
	}
	if n, ok := g.log.admit(hclog.Debug); ok {
		g.log.write(hclog.Debug, n, "command done", "command", command(e.Cmd), "duration", e.Duration)
	}
}

func (g *Guest) wasReset(e pvrdma.WasReset) {
	g.active.Set(0)
	g.metrics.resets.WithLabelValues(g.name, e.Cause.String()).Inc()
	if e.Err != nil {
		g.log.emit(hclog.Error, "device reset", "cause", e.Cause.String(), "error", quoted(e.Err))
		return
	}
	g.log.emit(hclog.Info, "device reset", "cause", e.Cause.String())
}

func (g *Guest) qpStateChanged(e pvrdma.QPStateChanged) {
	g.metrics.qpStateChanges.WithLabelValues(g.name, stateName(e.To)).Inc()
	suppressed, ok := g.log.admit(hclog.Debug)
	if !ok {
		return
	}
	args := []any{"handle", e.Handle, "qpn", e.QPN, "type", e.Type.String(), "from", stateName(e.From), "to", stateName(e.To)}
	if e.DGID != (hostverbs.GID{}) {
		args = append(args, "dest_qpn", e.DestQPN, "dgid", netip.AddrFrom16(e.DGID).String())
	}
	g.log.write(hclog.Debug, suppressed, "queue pair changed state", args...)
}

func (g *Guest) asyncEventSent(e pvrdma.AsyncEventSent) {
	level, res := hclog.Debug, "sent"
	if e.Lost {
		level, res = hclog.Warn, "lost"
	}
	g.metrics.asyncEvents.WithLabelValues(g.name, eventName(e.Type), res).Inc()
	g.log.emit(level, "asynchronous event "+res, "type", eventName(e.Type), "info", e.Info)
}

func (g *Guest) guestError(e pvrdma.GuestError) {
	if e.Reason >= numGuestErrors {
		g.metrics.protocolErrors.WithLabelValues(g.name, resultOther).Inc()
	} else {
		g.guestErrors[e.Reason].Inc()
	}
	if n, ok := g.log.admit(hclog.Warn); ok {
		g.log.write(hclog.Warn, n, "guest broke a rule of the device", "reason", e.Reason.String(), "error", quoted(e.Err))
	}
}

// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"net/netip"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// Observe implements pvrdma.Observer.
func (g *Guest) Observe(e pvrdma.Event) {
	switch e := e.(type) {
	case pvrdma.CommandDone:
		g.commandDone(e)
	case pvrdma.Activated:
		g.activated(e)
	case pvrdma.WasReset:
		g.wasReset(e)
	case pvrdma.ErrorStateChanged:
		g.errorStateChanged(e)
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
	g.commandDuration.Observe(e.Duration.Seconds())
	if e.Err == nil {
		g.succeeded(e.Cmd).Inc()
		if n, ok := g.log.admit(hclog.Debug); ok {
			g.log.write(hclog.Debug, n, "command done", "command", command(e.Cmd), "duration", e.Duration)
		}
		return
	}
	res := result(e.Err)
	g.metrics.commands.WithLabelValues(g.name, command(e.Cmd), res).Inc()
	if why := gidRefusal(e); why != "" {
		g.metrics.gidRefusals.WithLabelValues(g.name, why).Inc()
		g.log.emit(hclog.Warn, "address refused", "command", command(e.Cmd), "result", res, "reason", why,
			"error", quoted(e.Err), "next", gidNext(why))
		return
	}
	g.log.emit(hclog.Warn, "command failed", "command", command(e.Cmd), "result", res, "error", quoted(e.Err))
}

func (g *Guest) activated(e pvrdma.Activated) {
	g.active.Set(1)
	args := []any{"driver_version", e.DriverVersion, "version", e.Version}
	if e.VIOMMU {
		g.viommu.Set(1)
		g.log.emit(hclog.Warn, "driver switched the device on behind a virtual IOMMU", append(args, "next", viommuNext)...)
		return
	}
	g.viommu.Set(0)
	g.log.emit(hclog.Info, "driver switched the device on", args...)
}

// errorStateChanged keeps one state at 1. The line of a reset has said why, unless the event does.
func (g *Guest) errorStateChanged(e pvrdma.ErrorStateChanged) {
	for s := pvrdma.NoError + 1; s < numErrorStates; s++ {
		value := 0.0
		if s == e.State {
			value = 1
		}
		g.metrics.errorState.WithLabelValues(g.name, s.String()).Set(value)
	}
	if e.Err != nil {
		g.log.emit(hclog.Error, "device cannot serve the guest", "state", e.State.String(), "error", quoted(e.Err),
			"next", stateNext(e.State))
	}
}

// succeeded is the counter of a command's successes.
func (g *Guest) succeeded(c abi.Cmd) prometheus.Counter {
	if c >= abi.CmdMax {
		return g.metrics.commands.WithLabelValues(g.name, command(c), resultOK)
	}
	if p := g.done[c].Load(); p != nil {
		return *p
	}
	n := g.metrics.commands.WithLabelValues(g.name, command(c), resultOK)
	g.done[c].Store(&n)
	return n
}

func (g *Guest) wasReset(e pvrdma.WasReset) {
	g.active.Set(0)
	g.metrics.resets.WithLabelValues(g.name, e.Cause.String()).Inc()
	if e.Err != nil {
		args := []any{"cause", e.Cause.String(), "error", quoted(e.Err)}
		if next := resetNext(e.Cause); next != "" {
			args = append(args, "next", next)
		}
		g.log.emit(hclog.Error, "device reset", args...)
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

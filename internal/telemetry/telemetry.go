// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// Build says which program runs.
type Build struct{ Version, Revision, GoVersion string }

// Telemetry holds the daemon's metrics and the observers of its guests.
type Telemetry struct {
	registry *prometheus.Registry
	metrics  *metrics
	log      *Log
	http     *boundedLog
}

// New returns the metrics of a daemon that logs to log.
func New(log *Log, b Build) *Telemetry {
	reg := prometheus.NewRegistry()
	t := &Telemetry{registry: reg, log: log, metrics: newMetrics(reg)}
	// What clients of the HTTP server do wrong is no guest's doing.
	t.http = newBoundedLog(log.Named("metrics"), time.Now, t.metrics.suppressed.WithLabelValues(""))
	t.metrics.buildInfo.WithLabelValues(b.Version, b.Revision, b.GoVersion).Set(1)
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: namespace, Name: "log_lines_dropped_total",
			Help: "Log lines lost because nobody read the log fast enough.",
		}, func() float64 { return float64(log.writer.dropped.Load()) }),
	)
	return t
}

// GuestInfo describes a guest to people who read metrics.
type GuestInfo struct {
	Name, Engine, Doorbells string
	DeviceVersion, RoCE     uint32
	// Counters returns the data path counters of the guest's device, which only grow.
	Counters func() pvrdma.Counters
	// Objects returns what the guest's device holds at the moment.
	Objects func() pvrdma.Objects
}

// Guest observes one guest. It implements pvrdma.Observer; Door is its vfiouser.Observer. All methods are safe for
// concurrent use and never wait.
type Guest struct {
	name    string
	log     *boundedLog
	metrics *metrics

	// Resolved once, because a hostile guest causes these events as fast as it can.
	up, active      prometheus.Gauge
	viommu          prometheus.Gauge
	commandDuration prometheus.Observer
	answerDuration  prometheus.Observer
	guestErrors     [numGuestErrors]prometheus.Counter
	// done counts commands that succeeded. Resolved when one first does, so that only commands that were given have series.
	done [abi.CmdMax]atomic.Pointer[prometheus.Counter]
}

// numGuestErrors is one more than the last reason of pvrdma.GuestError.
const numGuestErrors = pvrdma.BadMemory + 1

// numResetCauses is one more than the last cause of pvrdma.WasReset.
const numResetCauses = pvrdma.ResetByBusMaster + 1

// numErrorStates is one more than the last state of pvrdma.ErrorStateChanged.
const numErrorStates = pvrdma.ErrorNotEnabled + 1

// AddGuest starts to observe a guest. Names are unique: a second guest of one name panics.
func (t *Telemetry) AddGuest(info GuestInfo) *Guest {
	m := t.metrics
	g := &Guest{
		name: info.Name, metrics: m,
		log:             newBoundedLog(t.log.With("guest", info.Name), time.Now, m.suppressed.WithLabelValues(info.Name)),
		up:              m.guestUp.WithLabelValues(info.Name),
		active:          m.guestActive.WithLabelValues(info.Name),
		viommu:          m.guestVIOMMU.WithLabelValues(info.Name),
		commandDuration: m.commandDuration.WithLabelValues(info.Name),
		answerDuration:  m.answerDuration.WithLabelValues(info.Name),
	}
	for r := range numGuestErrors {
		g.guestErrors[r] = m.protocolErrors.WithLabelValues(info.Name, r.String())
	}
	// A series that is there from the start lets an alert see the first event.
	for c := range numResetCauses {
		m.resets.WithLabelValues(info.Name, c.String())
	}
	for s := pvrdma.NoError + 1; s < numErrorStates; s++ {
		m.errorState.WithLabelValues(info.Name, s.String())
	}
	for _, r := range gidRefusals() {
		m.gidRefusals.WithLabelValues(info.Name, r)
	}
	for _, c := range []*prometheus.CounterVec{m.connections, m.busy, m.panics, m.acceptErrors} {
		c.WithLabelValues(info.Name)
	}
	m.guestInfo.WithLabelValues(info.Name, info.Engine, strconv.FormatUint(uint64(info.DeviceVersion), 10),
		strconv.FormatUint(uint64(info.RoCE), 10), info.Doorbells).Set(1)
	if info.Counters != nil {
		t.registry.MustRegister(&counterCollector{guest: info.Name, metrics: m, read: info.Counters})
	}
	if info.Objects != nil {
		t.registry.MustRegister(&objectCollector{guest: info.Name, metrics: m, read: info.Objects})
	}
	return g
}

// Door returns the observer of the guest's vfio-user server.
func (g *Guest) Door() vfiouser.Observer { return door{g} }

// stateName is the label of a QP's state.
func stateName(s hostverbs.QPState) string {
	if s > hostverbs.StateErr {
		return resultOther
	}
	return s.String()
}

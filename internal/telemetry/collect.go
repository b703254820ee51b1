// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/pvrdma"
)

// counterCollector reads the data path counters of one guest's device when they are scraped, so that the data path
// itself knows of no metric.
type counterCollector struct {
	guest   string
	metrics *metrics
	read    func() pvrdma.Counters
}

// Describe implements prometheus.Collector. It names nothing, because the collectors of all guests share their names;
// the registry checks what Collect returns instead.
func (c *counterCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *counterCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.read()
	m := c.metrics
	for _, s := range []struct {
		desc  *prometheus.Desc
		value uint64
		label []string
	}{
		{m.workRequests, n.SendWQEs, []string{"send"}},
		{m.workRequests, n.RecvWQEs, []string{"recv"}},
		// CQEErrors are among CQEs. Read in that order, they may be one ahead.
		{m.completions, n.CQEs - min(n.CQEErrors, n.CQEs), []string{"success"}},
		{m.completions, n.CQEErrors, []string{"error"}},
		{m.doorbells, n.Doorbells, nil},
		{m.notifications, n.Notifications, nil},
		{m.windowsDenied, n.WindowsDenied, nil},
	} {
		labels := append([]string{c.guest}, s.label...)
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, float64(s.value), labels...)
	}
}

// objectCollector asks a guest's device for what it holds when it is scraped.
type objectCollector struct {
	guest   string
	metrics *metrics
	read    func() pvrdma.Objects
}

// Describe implements prometheus.Collector. It names nothing, as counterCollector's.
func (c *objectCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *objectCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.read()
	for _, s := range []struct {
		typ   string
		count uint32
	}{{"user_context", n.Contexts}, {"pd", n.PDs}, {"mr", n.MRs}, {"cq", n.CQs}, {"qp", n.QPs}, {"srq", n.SRQs}} {
		ch <- prometheus.MustNewConstMetric(c.metrics.objects, prometheus.GaugeValue, float64(s.count), c.guest, s.typ)
	}
}

// AddEngine shows the counters of the software engine.
func (t *Telemetry) AddEngine(read func() soft.Counters) {
	t.registry.MustRegister(&engineCollector{metrics: t.metrics, read: read})
}

// engineCollector reads the software engine's counters when they are scraped.
type engineCollector struct {
	metrics *metrics
	read    func() soft.Counters
}

// Describe implements prometheus.Collector.
func (c *engineCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *engineCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.read()
	m := c.metrics
	for _, s := range []struct {
		desc  *prometheus.Desc
		value uint64
		label []string
	}{
		{m.engineMessages, n.Sends, []string{"send"}},
		{m.engineMessages, n.Writes, []string{"write"}},
		{m.engineMessages, n.Reads, []string{"read"}},
		{m.engineMessages, n.Atomics, []string{"atomic"}},
		{m.engineBytes, n.SendBytes, []string{"send"}},
		{m.engineBytes, n.WriteBytes, []string{"write"}},
		{m.engineBytes, n.ReadBytes, []string{"read"}},
		{m.engineBytes, n.AtomicBytes, []string{"atomic"}},
		{m.engineRegistrations, n.Registrations, nil},
		{m.engineInvalidations, n.Invalidations, nil},
		{m.engineRNRNAKs, n.RNRNAKs, nil},
		{m.engineRetries, n.Retries, nil},
		{m.engineForwarded, n.Forwarded, nil},
		{m.engineMemoryFaults, n.MemoryFaults, nil},
	} {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, float64(s.value), s.label...)
	}
	for reason, count := range n.Drops {
		label := soft.DropReason(reason).String()
		ch <- prometheus.MustNewConstMetric(m.engineDrops, prometheus.CounterValue, float64(count), label)
	}
	for status, count := range n.Completions {
		label := hostverbs.WCStatus(status).String()
		ch <- prometheus.MustNewConstMetric(m.engineCompletions, prometheus.CounterValue, float64(count), label)
	}
}

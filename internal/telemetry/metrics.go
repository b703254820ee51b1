// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// commandBuckets are bounds in seconds: a command is a few microseconds of work, or milliseconds where it registers
// gigabytes; the driver gives up after 10 s.
func commandBuckets() []float64 {
	return []float64{10e-6, 50e-6, 250e-6, 1e-3, 5e-3, 25e-3, 100e-3, 500e-3, 3}
}

// answerBuckets are bounds in seconds: an answer is one system call after the message, and QEMU gives up after 5 s.
func answerBuckets() []float64 { return []float64{10e-6, 50e-6, 250e-6, 1e-3, 10e-3, 100e-3, 1, 5} }

// metrics are the daemon's own metrics. Label values come from closed lists: guests from the configuration, the others
// from enumerations in the code.
type metrics struct {
	buildInfo, guestInfo, guestUp, guestActive                                    *prometheus.GaugeVec
	guestVIOMMU, errorState                                                       *prometheus.GaugeVec
	commands, protocolErrors, resets, asyncEvents                                 *prometheus.CounterVec
	qpStateChanges, connections, disconnects, busy                                *prometheus.CounterVec
	panics, acceptErrors, suppressed, gidRefusals                                 *prometheus.CounterVec
	commandDuration, answerDuration                                               *prometheus.HistogramVec
	workRequests, completions, doorbells, notifications, windowsDenied            *prometheus.Desc
	engineMessages, engineBytes, engineCompletions                                *prometheus.Desc
	engineRNRNAKs, engineRetries, engineDrops                                     *prometheus.Desc
	engineMemoryFaults, engineForwarded, engineRegistrations, engineInvalidations *prometheus.Desc
	objects                                                                       *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		buildInfo: gauge("build_info", "The running program: always 1.", "version", "revision", "goversion"),
		guestInfo: gauge("guest_info", "A configured guest: always 1.", "guest", "engine", "device_version", "roce", "doorbells"),
		guestUp:   gauge("guest_up", "Whether a virtual machine is attached to the guest's socket.", "guest"),
		guestActive: gauge("guest_active",
			"Whether the guest's driver has switched the device on.", "guest"),
		commands: counter("commands_total", "Commands executed, by result: ok or an errno.", "guest", "command", "result"),
		protocolErrors: counter("guest_protocol_errors_total",
			"Breaches of the device's or the socket's protocol.", "guest", "reason"),
		resets: counter("guest_resets_total", "Resets of the device.", "guest", "cause"),
		asyncEvents: counter("async_events_total",
			"Asynchronous events reported to the guest, or lost because its ring was full.", "guest", "type", "result"),
		qpStateChanges: counter("qp_state_changes_total", "Queue pairs that moved to a state.", "guest", "state"),
		connections:    counter("vfiouser_connections_total", "Virtual machines that attached.", "guest"),
		disconnects:    counter("vfiouser_disconnects_total", "Connections that ended.", "guest", "reason"),
		busy: counter("vfiouser_busy_refusals_total",
			"Connections closed because another virtual machine was attached.", "guest"),
		panics:       counter("guest_panics_total", "Faults of the daemon's own handling of a guest.", "guest"),
		acceptErrors: counter("vfiouser_accept_errors_total", "Failures to accept a connection.", "guest"),
		suppressed: counter("log_lines_suppressed_total",
			"Log lines held back because the guest caused too many.", "guest"),
		commandDuration: histogram("command_duration_seconds", "Time to execute a command.", commandBuckets()),
		answerDuration: histogram("vfiouser_answer_duration_seconds",
			"Time from a message's arrival until its answer was written.", answerBuckets()),
		workRequests: desc("work_requests_total", "Work requests taken from the guest's queues.", "guest", "queue"),
		completions:  desc("completions_total", "Completions written to the guest's queues.", "guest", "status"),
		doorbells:    desc("doorbells_total", "Doorbells of the guest that were served.", "guest"),
		notifications: desc("cq_notifications_total",
			"Completion queue events that the guest was interrupted for.", "guest"),
		windowsDenied: desc("memory_windows_denied_total",
			"Memory regions left scattered because the budget of mappings is used up.", "guest"),
		objects: desc("objects", "Objects of the guest's device that there are now.", "guest", "type"),
	}
	m.makeRefusals()
	m.describeEngine()
	reg.MustRegister(
		m.buildInfo, m.guestInfo, m.guestUp, m.guestActive, m.commands, m.protocolErrors, m.resets, m.asyncEvents,
		m.qpStateChanges, m.connections, m.disconnects, m.busy, m.panics, m.acceptErrors, m.suppressed, m.commandDuration,
		m.answerDuration, m.guestVIOMMU, m.errorState, m.gidRefusals,
	)
	return m
}

// makeRefusals makes the metrics of what keeps a guest from what it wants.
func (m *metrics) makeRefusals() {
	m.guestVIOMMU = gauge("guest_viommu",
		"Whether a virtual IOMMU translated the guest's addresses when its driver last switched the device on.", "guest")
	m.errorState = gauge("guest_error_state",
		"What keeps the device from serving the guest until its driver starts anew: 1 for the state it is in.",
		"guest", "state")
	m.gidRefusals = counter("gid_refusals_total",
		"Addresses that the guest may not use: another guest has bound them, or they are not in its gids.", "guest", "reason")
}

// describeEngine names the counters of the software engine, which are those of all guests together.
func (m *metrics) describeEngine() {
	m.engineMessages = desc("engine_messages_total", "Messages that arrived, by operation.", "operation")
	m.engineBytes = desc("engine_message_bytes_total", "Payload that arrived, by operation.", "operation")
	m.engineCompletions = desc("engine_completions_total", "Completions delivered to devices, by status.", "status")
	m.engineRNRNAKs = desc("engine_rnr_naks_total", "Messages that found no receive request and were tried again.")
	m.engineRegistrations = desc("engine_registrations_total", "Memory regions that a work request has given memory.")
	m.engineInvalidations = desc("engine_invalidations_total", "Memory regions that a work request or a message has freed.")
	m.engineRetries = desc("engine_retries_total", "Messages that found no peer and were tried again.")
	m.engineDrops = desc("engine_drops_total", "Datagrams and messages of unreliable connections that reached nobody, by reason.", "reason")
	m.engineForwarded = desc("engine_forwarded_messages_total", "Messages on their way to a guest of another worker.")
	m.engineMemoryFaults = desc("engine_memory_faults_total",
		"Copies that ended because a guest's memory was taken away.")
}

// namespace is the prefix of all names.
const namespace = "pvrdma"

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
	}, []string{"guest"})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

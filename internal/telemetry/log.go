// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// LogConfig says what is logged and how.
type LogConfig struct {
	// Level is the least level that is logged, as hclog names them.
	Level string
	// JSON writes one JSON object a line.
	JSON bool
	// Journal says that systemd's journal reads Output: it has the time and takes a priority.
	Journal bool
	// Output is where lines go.
	Output io.Writer
}

// Log is the daemon's root logger and the queue behind it.
type Log struct {
	hclog.Logger
	writer *writer
}

// NewLog returns the root logger. Close it.
func NewLog(cfg LogConfig) *Log {
	w := newWriter(cfg.Output, cfg.Journal)
	return &Log{writer: w, Logger: hclog.New(&hclog.LoggerOptions{
		Name:        "pvrdmad",
		Level:       hclog.LevelFromString(cfg.Level),
		Output:      w,
		JSONFormat:  cfg.JSON,
		DisableTime: cfg.Journal,
	})}
}

// Close writes the lines that are queued, for at most d.
func (l *Log) Close(d time.Duration) { l.writer.close(d) }

// How many lines a guest may cause: a burst, then a rate. What goes wrong repeats itself, and its count is a metric.
const (
	loudBurst, loudRate   = 20, 1    // warnings and errors
	plainBurst, plainRate = 20, 1    // the life of a guest: attached, active, reset
	debugBurst, debugRate = 1000, 50 // for a person who is looking right now
)

// boundedLog is a logger of which one guest cannot write more than its share. Each class of levels has a bucket of its
// own, so that chatter does not hide a warning.
type boundedLog struct {
	log                hclog.Logger
	now                func() time.Time
	loud, plain, debug *bucket
	suppressed         prometheus.Counter
}

func newBoundedLog(log hclog.Logger, now func() time.Time, suppressed prometheus.Counter) *boundedLog {
	return &boundedLog{
		log: log, now: now, suppressed: suppressed,
		loud:  newBucket(loudBurst, loudRate),
		plain: newBucket(plainBurst, plainRate),
		debug: newBucket(debugBurst, debugRate),
	}
}

// emit writes one line if the budget of its level allows it.
func (l *boundedLog) emit(level hclog.Level, msg string, args ...any) {
	if suppressed, ok := l.admit(level); ok {
		l.write(level, suppressed, msg, args...)
	}
}

// admit reports whether a line of that level may be written now, and how many were held back before it. Where events
// come by the million, ask it before making a line's arguments.
func (l *boundedLog) admit(level hclog.Level) (suppressed uint64, ok bool) {
	if level < l.log.GetLevel() {
		return 0, false
	}
	b := l.plain
	switch {
	case level >= hclog.Warn:
		b = l.loud
	case level <= hclog.Debug:
		b = l.debug
	}
	ok, suppressed = b.take(l.now())
	if !ok {
		l.suppressed.Inc()
	}
	return suppressed, ok
}

// write writes a line that was admitted.
func (l *boundedLog) write(level hclog.Level, suppressed uint64, msg string, args ...any) {
	if suppressed != 0 {
		args = append(args, "suppressed", suppressed)
	}
	l.log.Log(level, msg, args...)
}

// maxErrorLen bounds an error's text in a log line, in bytes.
const maxErrorLen = 512

// quoted is an error's text for a log line. It may repeat bytes that a guest chose: they are quoted and bounded.
func quoted(err error) hclog.Quote {
	if err == nil {
		return ""
	}
	s := err.Error()
	if len(s) > maxErrorLen {
		s = s[:maxErrorLen] + "..."
	}
	return hclog.Quote(s)
}

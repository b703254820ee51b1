// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// maxQueuedLines bounds the log lines that wait for a slow reader: bursts of all guests of a busy host fit, and at
// maxLineLen bytes each they take 8 MiB at most.
const maxQueuedLines = 2048

// maxLineLen bounds a log line in bytes; more is cut.
const maxLineLen = 4096

// writer writes log lines on a goroutine of its own, because the thread that logs may be one that serves guests, and
// the reader of the log may be slow or gone. Lines that do not fit its queue are dropped and counted.
type writer struct {
	out     io.Writer
	journal bool
	dropped atomic.Uint64
	done    chan struct{}

	mu     sync.RWMutex // held for reading while a line is queued
	closed bool         // guarded by mu
	lines  chan []byte
}

// newWriter starts a writer to out. With journal, lines begin with sd-daemon(3)'s priority.
func newWriter(out io.Writer, journal bool) *writer {
	w := &writer{out: out, journal: journal, done: make(chan struct{}), lines: make(chan []byte, maxQueuedLines)}
	go w.run()
	return w
}

func (w *writer) run() {
	defer close(w.done)
	reported := uint64(0)
	for line := range w.lines {
		// A log that cannot be written leaves nowhere to say so.
		_, _ = w.out.Write(line)
		if n := w.dropped.Load(); n != reported && len(w.lines) == 0 {
			_, _ = w.out.Write(w.prefixed(hclog.Warn, fmt.Appendf(nil, "[WARN]  log lines were dropped: count=%d\n", n-reported)))
			reported = n
		}
	}
}

// Write implements io.Writer for lines without a level.
func (w *writer) Write(p []byte) (int, error) { return w.LevelWrite(hclog.Info, p) }

// LevelWrite implements hclog.LevelWriter. It copies p and never waits.
func (w *writer) LevelWrite(level hclog.Level, p []byte) (int, error) {
	line := w.prefixed(level, p)
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		w.dropped.Add(1)
		return len(p), nil
	}
	select {
	case w.lines <- line:
	default:
		w.dropped.Add(1)
	}
	return len(p), nil
}

// prefixed copies p, cut to maxLineLen, with the priority in front if the journal reads it.
func (w *writer) prefixed(level hclog.Level, p []byte) []byte {
	line := make([]byte, 0, min(len(p), maxLineLen)+len("<4>")+1)
	if w.journal {
		line = append(line, '<', priority(level), '>')
	}
	if len(p) > maxLineLen {
		return append(append(line, p[:maxLineLen]...), '\n')
	}
	return append(line, p...)
}

// priority is the syslog severity of a level, syslog(3).
func priority(level hclog.Level) byte {
	switch level {
	case hclog.Error:
		return '3'
	case hclog.Warn:
		return '4'
	case hclog.Debug, hclog.Trace:
		return '7'
	default:
		return '6'
	}
}

// close writes what is queued, but gives up after d: the reader may be gone for good. No line is taken afterwards.
func (w *writer) close(d time.Duration) {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.lines)
	}
	w.mu.Unlock()
	select {
	case <-w.done:
	case <-time.After(d):
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// screen writes what happens, line by line, with the time since the start. Lines fit 100 columns.
type screen struct {
	mu    sync.Mutex // guards out
	out   io.Writer
	start time.Time
}

func newScreen(out io.Writer) *screen { return &screen{out: out, start: time.Now()} }

const columns = 100

// line writes a whole line.
func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// stage announces a step.
func (s *screen) stage(name, what string) {
	s.line("%6.1f s  %-9s %s", time.Since(s.start).Seconds(), name, what)
}

// note adds a line to the present step.
func (s *screen) note(format string, args ...any) {
	text := fmt.Sprintf("%6.1f s            ", time.Since(s.start).Seconds()) + fmt.Sprintf(format, args...)
	if r := []rune(text); len(r) > columns {
		text = string(r[:columns-3]) + "..."
	}
	s.line("%s", text)
}

// picture draws the two guests and what has passed between them.
func (s *screen) picture(t traffic) {
	const width = 34
	middle := fmt.Sprintf(" %s messages, %s ", group(t.messages), size(t.bytes))
	pad := max(width-len(middle), 2)
	s.note("[guest a]%s%s%s[guest b]", strings.Repeat("=", pad/2), middle, strings.Repeat("=", pad-pad/2))
}

// group writes a number with commas between thousands.
func group(n uint64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// size writes a number of bytes with the unit that suits it.
func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

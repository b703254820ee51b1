// SPDX-License-Identifier: Apache-2.0

// Command demo shows two virtual machines with the unmodified pvrdma driver that exchange data through the daemon: what
// happens while it happens, and one line at the end that says whether all of it was right.
//
// It is for people; a test that wants details uses package bed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// limit is how long the whole demonstration may take with nothing cached.
const limit = 15 * time.Minute

func main() { os.Exit(run()) }

func run() int {
	binary := flag.String("daemon", "", "the pvrdmad to show (default: build it)")
	messages := flag.Int("messages", 4000, "how many messages are compared byte by byte")
	logs := flag.String("logs", "out/demo", "directory for the logs of the daemon and of the guests")
	flag.Parse()

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	s := newScreen(os.Stdout)
	d := &demo{screen: s, binary: *binary, messages: *messages, logs: *logs}
	defer d.close()
	for _, st := range d.stages() {
		s.stage(st.name, st.what)
		if err := st.do(ctx); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			s.line("FAIL %s: %s; log: %s", st.name, oneLine(err), logPath(*logs))
			return 1
		}
	}
	s.line("PASS 2 guests, %d messages, %d bytes compared, p50 %s us", d.result.messages, d.result.bytes, d.result.p50)
	return 0
}

// causeLength is how much of a cause the last line has room for; the logs have the rest.
const causeLength = 160

// oneLine makes an error fit the last line: its beginning and, if that is not all, its last line, where programs say what
// went wrong.
func oneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	first, last := lines[0], lines[len(lines)-1]
	if len(lines) == 1 {
		return cut(first, causeLength)
	}
	return cut(first, causeLength/2) + " ... " + cut(last, causeLength/2)
}

// cut shortens a text to n characters.
func cut(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return string(r[:n-3]) + "..."
}

func logPath(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

// stage is one step of the demonstration.
type stage struct {
	name, what string
	do         func(context.Context) error
}

func (d *demo) stages() []stage {
	return []stage{
		{"images", "QEMU, guest and driver from Debian's packages", d.loadImages},
		{"daemon", "start pvrdmad and boot two guests with an unmodified kernel", d.boot},
		{"driver", "load the unmodified vmw_pvrdma in both", d.loadDrivers},
		{"pingpong", "ibv_rc_pingpong from one guest to the other", d.pingpong},
		{"payload", fmt.Sprintf("%d messages by every operation, each byte compared", d.messages), d.payload},
		{"kernel", "read both kernel logs: no warning, no complaint", d.kernelLogs},
		{"stop", "SIGTERM to the daemon", d.stop},
	}
}

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

// How long stages may take. Images are built in two minutes with nothing cached, and in half an hour on a machine whose
// processors others want too.
const (
	imagesLimit = time.Hour
	stageLimit  = 15 * time.Minute
)

func main() { os.Exit(run()) }

func run() int {
	binary := flag.String("daemon", "", "the pvrdmad to show (default: build it)")
	messages := flag.Int("messages", 4000, "how many messages are compared byte by byte")
	logs := flag.String("logs", "out/demo", "directory for the logs of the daemon and of the guests")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	s := newScreen(os.Stdout)
	d := &demo{screen: s, binary: *binary, messages: *messages, logs: *logs}
	defer d.close()
	for _, st := range d.stages() {
		s.stage(st.name, st.what)
		if err := st.within(ctx); err != nil {
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
	limit      time.Duration
	do         func(context.Context) error
}

// within runs the stage for as long as it may take.
func (st stage) within(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, st.limit,
		fmt.Errorf("took more than %v, is the machine busy? Run it again", st.limit))
	defer cancel()
	err := st.do(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

func (d *demo) stages() []stage {
	return []stage{
		{"images", "QEMU, guest and driver from Debian's packages", imagesLimit, d.loadImages},
		{"daemon", "start pvrdmad and boot two guests with an unmodified kernel", stageLimit, d.boot},
		{"driver", "load the unmodified vmw_pvrdma in both", stageLimit, d.loadDrivers},
		{"pingpong", "ibv_rc_pingpong from one guest to the other", stageLimit, d.pingpong},
		{"payload", fmt.Sprintf("%d messages by every operation, each byte compared", d.messages), stageLimit, d.payload},
		{"kernel", "read both kernel logs: no warning, no complaint", stageLimit, d.kernelLogs},
		{"stop", "SIGTERM to the daemon", stageLimit, d.stop},
	}
}

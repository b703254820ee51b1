// SPDX-License-Identifier: Apache-2.0

// Package systemd tells a service manager how the daemon is: ready, stopping, alive. Where there is none, it does
// nothing.
//
// It may not decide when that is: it says what it is told. Its watchdog says nothing unless a check just passed.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/coreos/go-systemd/v22/journal"
)

// Ready says that the daemon is up (sd_notify(3), READY=1), with a status line for people. The error is only that the
// service manager could not be told.
func Ready(status string) error { return notify(daemon.SdNotifyReady + "\n" + statusLine(status)) }

// Status changes the status line.
func Status(status string) error { return notify(statusLine(status)) }

// Stopping says that the daemon goes down.
func Stopping(status string) error {
	return notify(daemon.SdNotifyStopping + "\n" + statusLine(status))
}

// statusLine keeps the status on one line: each line of a notification is an assignment.
func statusLine(status string) string { return "STATUS=" + strings.ReplaceAll(status, "\n", " ") }

func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		assignment, _, _ := strings.Cut(state, "\n")
		return fmt.Errorf("notify the service manager of %s: %w", assignment, err)
	}
	return nil
}

// JournalReadsStderr reports whether what is written to standard error goes to the journal.
func JournalReadsStderr() bool {
	// An error means that JOURNAL_STREAM makes no sense, so that nobody can know.
	ok, err := journal.StderrIsJournalStream()
	return ok && err == nil
}

// Watchdog calls check twice in each interval that the service manager asks for (WatchdogSec=), and pings it when check
// returned nil within the half. It returns when ctx ends, at once if the service manager asks for nothing. Failures of
// check and of the ping go to failed.
func Watchdog(ctx context.Context, check func(context.Context) error, failed func(error)) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("read the watchdog's interval: %w", err)
	}
	if interval <= 0 {
		return nil
	}
	half := interval / 2
	tick := time.NewTicker(half)
	defer tick.Stop()
	for {
		if err := ping(ctx, half, check); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func ping(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := errors.Join(check(ctx), ctx.Err()); err != nil {
		return fmt.Errorf("no sign of life for the watchdog: %w", err)
	}
	return notify(daemon.SdNotifyWatchdog)
}

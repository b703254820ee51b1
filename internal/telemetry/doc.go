// SPDX-License-Identifier: Apache-2.0

// Package telemetry turns the typed events of the daemon's parts into metrics and log lines, and serves metrics and
// health over HTTP. One event is one count and at most one log line.
//
// It may not wait for anybody: guests cause its events, on the thread that serves them, so that a full disk, a slow
// scrape or a guest that misbehaves without end costs a bounded number of log bytes and of series, and no time. It may
// not change what it observes, and it makes no label of anything that a guest can choose freely.
package telemetry

// SPDX-License-Identifier: Apache-2.0

package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const greeting = `{"QMP": {"version": {}, "capabilities": []}}`

// monitor plays QEMU: it greets, and answers each command with what answer returns.
func monitor(t *testing.T, greeting string, answer func(command string, id int) string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = theirs.Close() }()
		_, _ = fmt.Fprintln(theirs, greeting)
		lines := bufio.NewScanner(theirs)
		for lines.Scan() {
			var request struct {
				Execute string `json:"execute"`
				ID      int    `json:"id"`
			}
			if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
				return
			}
			reply := answer(request.Execute, request.ID)
			if reply == "" {
				return
			}
			if _, err := fmt.Fprintln(theirs, reply); err != nil {
				return
			}
		}
	}()
	return ours
}

func ok(_ string, id int) string { return fmt.Sprintf(`{"return": {}, "id": %d}`, id) }

func TestEventsAndRepliesFindTheirWay(t *testing.T) {
	events := make(chan string, 1)
	conn := monitor(t, greeting, func(command string, id int) string {
		if command == "query-status" {
			return fmt.Sprintf("{\"event\": \"RESET\", \"data\": {}}\n{\"return\": {\"status\": \"running\"}, \"id\": %d}", id)
		}
		return ok(command, id)
	})
	c, err := NewClient(conn, func(name string) { events <- name })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	var status struct {
		Status string `json:"status"`
	}
	if err := c.Execute(t.Context(), "query-status", nil, &status); err != nil || status.Status != "running" {
		t.Errorf("query-status: %+v, %v", status, err)
	}
	if name := <-events; name != "RESET" {
		t.Errorf("event %q, want RESET", name)
	}
}

func TestFailuresOfTheMonitorAreErrors(t *testing.T) {
	fail := func(command string, id int) string {
		if command == "qmp_capabilities" {
			return ok(command, id)
		}
		return fmt.Sprintf(`{"error": {"class": "CommandNotFound", "desc": "no such thing"}, "id": %d}`, id)
	}
	hangUp := func(command string, id int) string {
		if command == "qmp_capabilities" {
			return ok(command, id)
		}
		return ""
	}
	silent := func(command string, id int) string {
		if command == "qmp_capabilities" {
			return ok(command, id)
		}
		return `{"event": "NOT_AN_ANSWER"}`
	}
	for name, tc := range map[string]struct {
		answer func(string, int) string
		limit  time.Duration
		want   func(error) bool
	}{
		"refused command": {fail, time.Minute, func(err error) bool { return strings.Contains(err.Error(), "no such thing") }},
		"connection ends": {hangUp, time.Minute, func(err error) bool { return errors.Is(err, ErrClosed) }},
		"no answer":       {silent, 50 * time.Millisecond, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := NewClient(monitor(t, greeting, tc.answer), func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
			defer cancel()

			if err := c.Execute(ctx, "quit", nil, nil); err == nil || !tc.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSomethingElseThanAMonitorIsRefused(t *testing.T) {
	for _, text := range []string{`{"return": {}, "id": 1}`, "SSH-2.0-OpenSSH"} {
		if _, err := NewClient(monitor(t, text, ok), func(string) {}); err == nil {
			t.Errorf("a peer that greets with %q was taken for a monitor", text)
		}
	}
}

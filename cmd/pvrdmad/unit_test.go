// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/config"
)

// unit reads the lines KEY=VALUE of the service's unit file.
func unit(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/pvrdmad.service")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			settings[key] = append(settings[key], value)
		}
	}
	return settings
}

func TestTheUnitStartsCommandsThatThereAre(t *testing.T) {
	u := unit(t)
	commands := append(u["ExecStartPre"], u["ExecStart"]...)
	if len(commands) != 2 {
		t.Fatalf("commands %q, want two", commands)
	}
	for _, line := range commands {
		words := strings.Fields(line)
		cmd, rest, err := newRoot().Find(words[1:])
		if err != nil || cmd.Name() != words[1] {
			t.Errorf("%s: no such command, %v", line, err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if path := cmd.Flags().Lookup("config").Value.String(); words[0] != "/usr/bin/pvrdmad" || path != config.DefaultPath {
			t.Errorf("%s: reads %s, want /usr/bin/pvrdmad to read %s", line, path, config.DefaultPath)
		}
	}
}

func TestTheUnitFitsTheDaemon(t *testing.T) {
	u := unit(t)
	for key, want := range map[string]string{
		"Type":             "notify",
		"RuntimeDirectory": strings.TrimPrefix(config.SocketDir, "/run/"),
		// A wrong configuration is not tried again.
		"RestartPreventExitStatus": "64 78",
		"CapabilityBoundingSet":    "",
		"NoNewPrivileges":          "yes",
		"MemoryDenyWriteExecute":   "yes",
		"ProtectSystem":            "strict",
		"TimeoutStopSec":           "5s",
		"WatchdogSec":              "30s",
	} {
		if got := u[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s=%q, want %q", key, got, want)
		}
	}
}

func TestTheManualNamesEveryCommandAndExitCode(t *testing.T) {
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []int{exitOK, exitFailed, exitUsage, exitUnavailable, exitConfig} {
		if !strings.Contains(string(manual), fmt.Sprintf("\n| %d | ", code)) {
			t.Errorf("exit code %d is not in the manual", code)
		}
	}
	for _, cmd := range newRoot().Commands() {
		if !strings.Contains(string(manual), "\n| `"+cmd.Name()) {
			t.Errorf("command %s is not in the manual", cmd.Name())
		}
	}
}

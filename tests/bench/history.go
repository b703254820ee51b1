// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// record is a run, one line of the history.
type record struct {
	Date    string   `json:"date"`
	Commit  string   `json:"commit"`
	CPU     string   `json:"cpu"`
	CPUs    int      `json:"cpus"`
	Kernel  string   `json:"kernel"`
	Go      string   `json:"go"`
	Rounds  int      `json:"rounds"`
	Turn    string   `json:"turn"`
	Results []result `json:"results"`
}

func newRecord(o options) *record {
	r := &record{
		Date: time.Now().UTC().Format(time.RFC3339), Commit: commit(), CPU: cpuModel(), CPUs: runtime.NumCPU(),
		Go: runtime.Version(), Rounds: o.rounds, Turn: o.turn.String(),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Kernel = string(bytes.TrimRight(u.Release[:], "\x00"))
	}
	return r
}

// commit is the commit of the checkout, with a "+" if files differ from it.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	c := strings.TrimSpace(string(out))
	if exec.Command("git", "diff", "--quiet", "HEAD").Run() != nil {
		c += "+"
	}
	return c
}

func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// appendTo appends the run to a history file.
func (r *record) appendTo(path string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("append to %s: %w", path, err)
	}
	return f.Close()
}

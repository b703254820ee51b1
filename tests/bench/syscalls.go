// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// syscallMessages is how many messages are sent while the worker's system calls are counted, maxSyscalls how many calls
// it may make meanwhile.
const (
	syscallMessages = 1_000_000
	maxSyscalls     = 1000
)

// measureSyscalls counts the system calls of the worker's thread while a million messages pass through it.
func measureSyscalls(b *bench) ([]result, error) {
	w, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots})
	if err != nil {
		return nil, err
	}
	defer w.close()
	out := filepath.Join(b.dir, "strace")
	trace := exec.Command("strace", "-c", "-U", "calls,name", "-o", out, "-p", strconv.Itoa(w.d.worker))
	if err := trace.Start(); err != nil {
		return nil, fmt.Errorf("%w; next: scripts/setup installs strace", err)
	}
	defer trace.Process.Kill() // where it has not ended below
	if err := awaitTracer(w.d); err != nil {
		return nil, err
	}
	q := flowRequest{Size: smallSize, Slots: smallSlots, Window: smallWindow, Count: syscallMessages}
	if err := w.subject("count", q, nil); err != nil {
		return nil, err
	}
	_ = trace.Process.Signal(unix.SIGINT)
	_ = trace.Wait() // it reports the signal
	n, err := countCalls(out)
	if err != nil {
		return nil, err
	}
	r := result{
		Name: "worker's system calls, 10^6 messages", Unit: "calls", Value: spreadOf([]float64{n}), Rounds: 1,
		Aim: fmt.Sprintf("< %d", maxSyscalls), Verdict: verdictMet,
	}
	if n >= maxSyscalls {
		r.Verdict = verdictMissed
	}
	return []result{r}, nil
}

// awaitTracer returns when somebody traces the worker's thread.
func awaitTracer(d *daemon) error {
	status := fmt.Sprintf("/proc/%d/task/%d/status", d.cmd.Process.Pid, d.worker)
	for deadline := time.Now().Add(readyTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(status)
		if err != nil {
			return err
		}
		if !strings.Contains(string(b), "TracerPid:\t0\n") {
			return nil
		}
	}
	return fmt.Errorf("strace does not attach to the worker's thread")
}

// countCalls adds up a summary of strace: lines of a number and a name.
func countCalls(path string) (float64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 2 && f[1] == "total" {
			return strconv.ParseFloat(f[0], 64)
		}
	}
	return 0, fmt.Errorf("strace counted nothing: %q", b)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/agentproto"
)

// scriptCgroups is where each script gets a cgroup: killing that reaches every child, whatever it did to its session.
const scriptCgroups = "/sys/fs/cgroup"

// work is what the agent is busy with. Its maps belong to the goroutine that reads the port, scripts to both sides.
type work struct {
	port    *port
	mu      sync.Mutex // guards scripts
	scripts map[uint32]*script
	puts    map[uint32]*put
}

type script struct {
	cgroup   string
	timedOut bool // written by the timer before it kills, read after the wait
}

func (w *work) dispatch(f agentproto.Frame) {
	switch f.Kind {
	case agentproto.KindRun:
		w.run(f)
	case agentproto.KindKill:
		w.kill(f.Stream)
	case agentproto.KindPut:
		w.beginPut(f)
	case agentproto.KindData, agentproto.KindEnd:
		w.continuePut(f)
	case agentproto.KindGet:
		go w.get(f)
	default:
		w.port.sendExit(f.Stream, agentproto.Exit{Status: -1, Err: fmt.Sprintf("unknown frame kind %d", f.Kind)})
	}
}

// run starts a script and leaves a goroutine with it.
func (w *work) run(f agentproto.Frame) {
	var request agentproto.Run
	if err := agentproto.Decode(f.Payload, &request); err != nil {
		w.port.sendExit(f.Stream, agentproto.Exit{Status: -1, Err: err.Error()})
		return
	}
	s := &script{cgroup: filepath.Join(scriptCgroups, "script-"+strconv.FormatUint(uint64(f.Stream), 10))}
	cmd, err := s.start(w.port, f.Stream, request.Script)
	if err != nil {
		w.port.sendExit(f.Stream, agentproto.Exit{Status: -1, Err: err.Error()})
		return
	}
	w.mu.Lock()
	w.scripts[f.Stream] = s
	w.mu.Unlock()
	go func() {
		exit := s.wait(cmd, time.Duration(request.LimitMS)*time.Millisecond)
		w.mu.Lock()
		delete(w.scripts, f.Stream)
		w.mu.Unlock()
		w.port.sendExit(f.Stream, exit)
	}()
}

func (w *work) kill(stream uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.scripts[stream]; s != nil {
		s.killAll()
	}
}

func (s *script) start(p *port, stream uint32, text string) (*exec.Cmd, error) {
	if err := os.Mkdir(s.cgroup, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup for the script: %w", err)
	}
	dir, err := os.Open(s.cgroup)
	if err != nil {
		return nil, fmt.Errorf("make a cgroup for the script: %w", err)
	}
	defer func() { _ = dir.Close() }()
	cmd := exec.Command("/bin/bash", "-c", text)
	cmd.Dir = "/root"
	cmd.Stdout = output{p, stream, agentproto.KindStdout}
	cmd.Stderr = output{p, stream, agentproto.KindStderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start bash: %w", err)
	}
	return cmd, nil
}

// wait ends when the script itself ends; children that it left behind are killed then.
func (s *script) wait(cmd *exec.Cmd, limit time.Duration) agentproto.Exit {
	var timer *time.Timer
	timerDone := make(chan struct{})
	if limit > 0 {
		timer = time.AfterFunc(limit, func() {
			defer close(timerDone)
			s.timedOut = true
			s.killAll()
		})
	}
	state, err := cmd.Process.Wait()
	if timer != nil && !timer.Stop() {
		<-timerDone
	}
	s.killAll()
	_ = cmd.Wait() // its own Wait has nothing left to reap, but collects the output
	s.removeCgroup()
	if err != nil {
		return agentproto.Exit{Status: -1, Err: err.Error()}
	}
	exit := agentproto.Exit{Status: state.ExitCode(), TimedOut: s.timedOut}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = int(status.Signal())
	}
	return exit
}

func (s *script) killAll() {
	_ = os.WriteFile(filepath.Join(s.cgroup, "cgroup.kill"), []byte("1"), 0)
}

// removeCgroup waits a little for killed children: the directory is busy until process 1 has reaped them.
func (s *script) removeCgroup() {
	const tries = 50
	for range tries {
		if err := os.Remove(s.cgroup); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// The roles that this program plays for itself.
const (
	roleVariable = "PVRDMAD_BENCH_ROLE"
	// roleGuest are the guests: their memory, their programs.
	roleGuest = "guest"
	// roleFar is the other side of each bound: on the worker's processor, while the daemon stands still.
	roleFar = "far"
)

// operation is something that a child process does when it is told to.
type operation func(c *child, arg json.RawMessage) (any, error)

// op makes an operation of a function.
func op[A, R any](f func(c *child, a A) (R, error)) operation {
	return func(c *child, arg json.RawMessage) (any, error) {
		var a A
		if err := json.Unmarshal(arg, &a); err != nil {
			return nil, err
		}
		return f(c, a)
	}
}

// request and response are lines of JSON between the processes.
type request struct {
	Op  string
	Arg json.RawMessage
}

type response struct {
	Result json.RawMessage
	Error  string
}

// child is what a child process holds.
type child struct {
	guests []*pair
	shared *sharedMemory
	doors  *doors
}

// runRole is the main function of a child process.
func runRole(role string) int {
	// One processor: whatever else the runtime wants to do happens when nothing is measured.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	ops := operations(role)
	c := &child{}
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var q request
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return 0
		} else if err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", role, err)
			return 1
		}
		if err := out.Encode(c.answer(ops[q.Op], q)); err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", role, err)
			return 1
		}
	}
}

func (c *child) answer(f operation, q request) (r response) {
	if f == nil {
		return response{Error: fmt.Sprintf("no operation %q", q.Op)}
	}
	v, err := f(c, q.Arg)
	if err == nil {
		r.Result, err = json.Marshal(v)
	}
	if err != nil {
		r.Error = err.Error()
	}
	runtime.GC()
	return r
}

// process is a child process, seen from the one that measures.
type process struct {
	role string
	cmd  *exec.Cmd
	in   io.WriteCloser
	enc  *json.Encoder
	dec  *json.Decoder
}

// startProcess starts this program in a role on some processors.
func startProcess(role string, cpus ...int) (*process, error) {
	p := &process{role: role, cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.enc, p.dec = json.NewEncoder(p.in), json.NewDecoder(bufio.NewReader(out))
	if err := startOn(p.cmd, cpus...); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return p, nil
}

// startOn starts a command on some processors: its threads inherit them, and its priority. It dies with this program.
func startOn(cmd *exec.Cmd, cpus ...int) error {
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: its processors and priority are the child's
		var set unix.CPUSet
		for _, cpu := range cpus {
			set.Set(cpu)
		}
		err := unix.SchedSetaffinity(0, &set)
		if err == nil {
			// Where the kernel shares processors among sessions first, the priority inside a session is not enough.
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, highest)
			err = cmd.Start()
		}
		if err == nil {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(strconv.Itoa(highest)), 0)
		}
		result <- err
		select {} // the child lives no longer than the thread that started it
	}()
	return <-result
}

// highest is the priority that puts a process before everybody else's, if that is allowed: what else runs on the machine
// then disturbs less. Without the right to it figures vary more, which the verdict sees.
const highest = -20

// begin tells the process to do something, end waits for its answer.
func (p *process) begin(op string, arg any) error {
	raw, err := json.Marshal(arg)
	if err != nil {
		return err
	}
	return p.enc.Encode(request{Op: op, Arg: raw})
}

func (p *process) end(result any) error {
	var r response
	if err := p.dec.Decode(&r); err != nil {
		return fmt.Errorf("%s ended: %w", p.role, err)
	}
	if r.Error != "" {
		return errors.New(p.role + ": " + r.Error)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(r.Result, result)
}

// call is begin and end.
func (p *process) call(op string, arg, result any) error {
	if err := p.begin(op, arg); err != nil {
		return err
	}
	return p.end(result)
}

// stop ends the process.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	_ = p.in.Close() // the end of its input is the end of its work
	late := time.AfterFunc(stopTime, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	return p.cmd.Wait()
}

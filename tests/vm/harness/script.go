// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/agentproto"
)

// What bounds a script.
const (
	// DefaultScriptLimit is a script's time limit when its context has no deadline.
	DefaultScriptLimit = Slow * 30 * time.Second
	// MaxOutput is how much output of a script is kept, in bytes, of each of stdout and stderr.
	MaxOutput = 16 << 20
	// answerGrace is how long the agent may take, beyond a script's own limit, to say that it has ended.
	answerGrace = Slow * 5 * time.Second
)

// ErrTimeLimit says that a script was killed because it ran into its time limit.
var ErrTimeLimit = errors.New("time limit exceeded")

// Result is how a script ended.
type Result struct {
	Status int    // exit status; -1 if a signal ended it
	Signal int    // the signal that ended it, or 0
	Stdout string // what it wrote, both cut at MaxOutput
	Stderr string
}

// Script is a script that runs in a guest.
type Script struct {
	guest    *Guest
	boot     *boot
	id       uint32
	stream   *stream
	text     string
	deadline time.Time

	mu             sync.Mutex // guards the output
	stdout, stderr bytes.Buffer
}

// Start runs a bash script in the guest, as root, and returns while it runs. When ctx has a deadline the script and
// all its children are killed then; without one they get DefaultScriptLimit. Children that a script leaves behind
// are killed when it ends. Any number of scripts may run at a time.
func (g *Guest) Start(ctx context.Context, text string) (*Script, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(DefaultScriptLimit)
	}
	limit := time.Until(deadline)
	if limit <= 0 {
		return nil, fmt.Errorf("guest %s: start script: %w", g.config.Name, context.DeadlineExceeded)
	}
	s := &Script{guest: g, boot: g.link.current(), text: text, deadline: deadline}
	s.stream = &stream{deliver: s.receive, exit: make(chan agentproto.Exit, 1)}
	request := agentproto.Run{Script: text, LimitMS: max(1, limit.Milliseconds())}
	var err error
	s.id, err = g.link.open(s.boot, agentproto.KindRun, agentproto.Encode(request), s.stream)
	if err != nil {
		return nil, fmt.Errorf("guest %s: start script: %w", g.config.Name, err)
	}
	g.link.logf("[%d] $ %s", s.id, text)
	return s, nil
}

func (s *Script) receive(kind agentproto.Kind, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := &s.stdout
	if kind == agentproto.KindStderr {
		to = &s.stderr
	}
	to.Write(b[:min(len(b), MaxOutput-to.Len())])
}

// Output is what the script has written so far to stdout and stderr.
func (s *Script) Output() (stdout, stderr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stdout.String(), s.stderr.String()
}

// Await waits until the script has written text to stdout. It is an error if the script ends without.
func (s *Script) Await(ctx context.Context, text string) error {
	const look = 10 * time.Millisecond
	for {
		ended := len(s.stream.exit) > 0 // before looking at the output, which is complete then
		stdout, stderr := s.Output()
		if strings.Contains(stdout, text) {
			return nil
		}
		if ended {
			return s.explain(fmt.Errorf("it ended without having written %q", text), Result{Stdout: stdout, Stderr: stderr})
		}
		select {
		case <-ctx.Done():
			return s.explain(fmt.Errorf("waiting for %q: %w", text, context.Cause(ctx)), Result{Stdout: stdout, Stderr: stderr})
		case <-s.boot.over:
			return s.explain(s.boot.err, Result{Stdout: stdout, Stderr: stderr})
		case <-time.After(look):
		}
	}
}

// Kill ends the script and all its children at once with SIGKILL. Wait still tells how it ended.
func (s *Script) Kill() error { return s.guest.link.send(s.boot, s.id, agentproto.KindKill, nil) }

// Wait waits until the script has ended. A non-zero exit status is no error; a time limit, a reset or the end of the
// guest is. When ctx is done the script is killed.
func (s *Script) Wait(ctx context.Context) (Result, error) {
	lost := time.NewTimer(time.Until(s.deadline) + answerGrace)
	defer lost.Stop()
	stop := ctx.Done()
	for {
		select {
		case exit := <-s.stream.exit:
			return s.finish(exit, context.Cause(ctx))
		case <-s.boot.over:
			return s.giveUp(s.boot.err)
		case <-lost.C:
			return s.giveUp(fmt.Errorf("%w, and the agent does not answer (is the guest hung?)", ErrTimeLimit))
		case <-stop:
			stop = nil // once
			_ = s.Kill()
			lost.Reset(answerGrace)
		}
	}
}

func (s *Script) finish(exit agentproto.Exit, cancelled error) (Result, error) {
	stdout, stderr := s.Output()
	result := Result{Status: exit.Status, Signal: exit.Signal, Stdout: stdout, Stderr: stderr}
	s.guest.link.logf("[%d] status %d signal %d\n%s%s", s.id, exit.Status, exit.Signal, stdout, stderr)
	var err error
	switch {
	case exit.Err != "":
		err = errors.New(exit.Err)
	case exit.TimedOut, errors.Is(cancelled, context.DeadlineExceeded) && exit.Signal != 0:
		err = ErrTimeLimit
	case cancelled != nil && exit.Signal != 0:
		err = cancelled
	}
	return result, s.explain(err, result)
}

func (s *Script) giveUp(cause error) (Result, error) {
	s.guest.link.forget(s.boot, s.id)
	stdout, stderr := s.Output()
	s.guest.link.logf("[%d] given up: %v\n%s%s", s.id, cause, stdout, stderr)
	result := Result{Status: -1, Stdout: stdout, Stderr: stderr}
	return result, s.explain(cause, result)
}

func (s *Script) explain(err error, r Result) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("guest %s: script %q: %w%s", s.guest.config.Name, firstLine(s.text), err, tail(r))
}

// Run is Start and Wait.
func (g *Guest) Run(ctx context.Context, text string) (Result, error) {
	s, err := g.Start(ctx, text)
	if err != nil {
		return Result{}, err
	}
	return s.Wait(ctx)
}

// Output runs a script that must succeed and returns what it wrote to stdout.
func (g *Guest) Output(ctx context.Context, text string) (string, error) {
	r, err := g.Run(ctx, text)
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("guest %s: script %q: exit status %d%s", g.config.Name, firstLine(text), r.Status, tail(r))
	}
	return r.Stdout, err
}

func firstLine(text string) string {
	line, rest, more := strings.Cut(strings.TrimSpace(text), "\n")
	if more && rest != "" {
		line += " ..."
	}
	return line
}

// tail is the end of a script's output, for an error message.
func tail(r Result) string {
	const keep = 800
	text := strings.TrimSpace(r.Stdout + r.Stderr)
	if text == "" {
		return ""
	}
	if len(text) > keep {
		text = "..." + text[len(text)-keep:]
	}
	return "; it wrote:\n" + text
}

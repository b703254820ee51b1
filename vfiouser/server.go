// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Pauses after a failed accept(2), doubling from the first to the last: a process that has run out of file
// descriptors must not spin.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// penalty is how long nobody is let in after a client that blocked an eventfd, so that it cannot hold other threads
// up most of the time by coming again and again.
const penalty = time.Second

// defaultTimeout is the default of both timeouts: QEMU waits 5 s for an answer.
const defaultTimeout = 5 * time.Second

// Config says what a Server serves.
type Config struct {
	// Open returns the device for a client whose VERSION was accepted; Session.Peer is complete by then. An
	// error refuses the client with the errno it wraps. It runs on the session's goroutine.
	Open func(s *Session) (Device, error)
	// Observer is told what happens; nil for nobody.
	Observer Observer
	// HandshakeTimeout is how long a client may take until its VERSION has arrived, 0 for 5 s. A client that
	// connects and says nothing would keep all others out.
	HandshakeTimeout time.Duration
	// WriteTimeout is how long an answer may wait for the client to read, at least, and twice that at most; 0 for 5 s.
	WriteTimeout time.Duration
}

// Server serves one client at a time.
type Server struct {
	listener *net.UnixListener
	cfg      Config
	served   atomic.Bool
}

// NewServer returns a server for the clients of a listener, which becomes the server's.
func NewServer(l *net.UnixListener, cfg Config) *Server {
	if cfg.Observer == nil {
		cfg.Observer = NopObserver{}
	}
	if cfg.HandshakeTimeout <= 0 {
		cfg.HandshakeTimeout = defaultTimeout
	}
	if cfg.WriteTimeout <= 0 {
		cfg.WriteTimeout = defaultTimeout
	}
	return &Server{listener: l, cfg: cfg}
}

// Serve accepts clients, one at a time, until ctx ends; then it closes the client's connection and the listener,
// waits until the device is closed and returns nil. A client that comes while another one is attached is closed
// at once; one that comes while the last one is being cleaned up after waits. Serve returns an error only if the
// listener fails for good, and EBUSY when it is called twice.
func (s *Server) Serve(ctx context.Context) error {
	if s.cfg.Open == nil {
		return fmt.Errorf("serve vfio-user: Config.Open is nil: %w", unix.EINVAL)
	}
	if !s.served.CompareAndSwap(false, true) {
		return fmt.Errorf("serve vfio-user: already served: %w", unix.EBUSY)
	}
	defer s.listener.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer stop()

	var current *Session
	defer func() {
		if current != nil {
			current.stop(&ending{ReasonShutdown, nil})
			<-current.done
		}
	}()
	for {
		conn, err := s.accept(ctx)
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve vfio-user: %w", err)
		}
		current = s.admit(ctx, current, conn)
	}
}

// accept waits for a client. It tries again after errors that pass.
func (s *Server) accept(ctx context.Context) (*net.UnixConn, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		conn, err := s.listener.AcceptUnix()
		if err == nil || ctx.Err() != nil || !passes(err) {
			return conn, err
		}
		s.cfg.Observer.AcceptFailed(err, pause)
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

// passes says whether a failed accept(2) may succeed later.
func passes(err error) bool {
	for _, errno := range []unix.Errno{
		unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.ECONNABORTED, unix.EINTR, unix.EAGAIN, unix.EPERM,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// sleep waits; it returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// admit begins a session for a client if the current session is over, or as good as over. It returns the current
// session.
func (s *Server) admit(ctx context.Context, current *Session, conn *net.UnixConn) *Session {
	if current != nil {
		if !current.leaving() {
			s.cfg.Observer.BusyRefused(peerOf(conn))
			_ = conn.Close()
			return current
		}
		select {
		case <-current.done:
		case <-ctx.Done():
			_ = conn.Close()
			return current
		}
		if current.why.reason == ReasonBlockingEventFD && !sleep(ctx, penalty) {
			_ = conn.Close()
			return nil
		}
	}
	next := newSession(conn, peerOf(conn), s.cfg)
	go next.run()
	return next
}

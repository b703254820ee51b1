// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"io/fs"
	"net"
	"time"
)

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
	// WriteTimeout is how long an answer may wait for the client to read, 0 for 5 s.
	WriteTimeout time.Duration
}

// Server listens on a unix socket and serves one client at a time.
type Server struct {
	listener *net.UnixListener
	cfg      Config
}

// NewServer returns a server for the clients of a listener, which becomes the server's.
func NewServer(l *net.UnixListener, cfg Config) *Server { return &Server{listener: l, cfg: cfg} }

// Serve accepts clients until ctx ends.
func (s *Server) Serve(ctx context.Context) error { panic("not written yet") }

// Listen binds a unix socket.
func Listen(path string, mode fs.FileMode) (*net.UnixListener, error) { panic("not written yet") }

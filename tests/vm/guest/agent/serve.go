// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/agentproto"
)

// port is the virtio-serial port. Reads belong to one goroutine; sends may come from all.
type port struct {
	fd      int
	session uint32
	mu      sync.Mutex // one frame at a time
}

// Read waits until the harness has connected and sent something: an unconnected port reads as empty.
func (p *port) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(p.fd, b)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			time.Sleep(20 * time.Millisecond)
		case !errors.Is(err, unix.EINTR):
			return 0, os.NewSyscallError("read agent port", err)
		}
	}
}

// Write blocks while the harness is not connected. The kernel takes at most 32 KiB at a time.
func (p *port) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Write(p.fd, b[done:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return done, os.NewSyscallError("write agent port", err)
		}
		done += max(n, 0)
	}
	return done, nil
}

func (p *port) send(stream uint32, kind agentproto.Kind, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	frame := agentproto.Frame{Session: p.session, Stream: stream, Kind: kind, Payload: payload}
	if err := agentproto.Write(p, frame); err != nil {
		fatal(err)
	}
}

func (p *port) sendExit(stream uint32, exit agentproto.Exit) {
	p.send(stream, agentproto.KindExit, agentproto.Encode(exit))
}

// output sends what is written to it as frames of one kind.
type output struct {
	port   *port
	stream uint32
	kind   agentproto.Kind
}

func (o output) Write(b []byte) (int, error) {
	for at := 0; at < len(b); at += agentproto.MaxPayload {
		o.port.send(o.stream, o.kind, b[at:min(len(b), at+agentproto.MaxPayload)])
	}
	return len(b), nil
}

func openPort() (*port, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, fmt.Errorf("find agent port: %w", err)
	}
	for _, file := range names {
		if name, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(name)) != agentproto.PortName {
			continue
		}
		device := "/dev/" + filepath.Base(filepath.Dir(file))
		fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open agent port %s: %w", device, err)
		}
		var session [4]byte
		_, _ = rand.Read(session[:]) // never fails, says crypto/rand
		return &port{fd: fd, session: binary.LittleEndian.Uint32(session[:]) | 1}, nil
	}
	return nil, fmt.Errorf("found no virtio-serial port named %s among %d", agentproto.PortName, len(names))
}

// serve is the agent: it never returns but for an error.
func serve() error {
	p, err := openPort()
	if err != nil {
		return err
	}
	p.send(0, agentproto.KindHello, agentproto.Encode(hello()))
	work := &work{port: p, scripts: map[uint32]*script{}, puts: map[uint32]*put{}}
	for {
		frame, err := agentproto.Read(p)
		if err != nil {
			return err
		}
		if frame.Session == p.session {
			work.dispatch(frame)
		}
	}
}

func hello() agentproto.Hello {
	var uts unix.Utsname
	h := agentproto.Hello{}
	if err := unix.Uname(&uts); err != nil {
		h.Errors = append(h.Errors, fmt.Sprintf("uname: %v", err))
	}
	h.Name, h.Kernel = unix.ByteSliceToString(uts.Nodename[:]), unix.ByteSliceToString(uts.Release[:])
	uptime, err := os.ReadFile("/proc/uptime")
	if err == nil {
		_, err = fmt.Sscan(string(uptime), &h.Uptime)
	}
	if err != nil {
		h.Errors = append(h.Errors, fmt.Sprintf("uptime: %v", err))
	}
	if setup := os.Getenv(errorsEnv); setup != "" {
		h.Errors = append(h.Errors, strings.Split(setup, "\n")...)
	}
	return h
}

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// Switch is the Ethernet between guests: QEMU's stream netdevs connect to its socket, and it learns who is where. A
// guest may come and go at any time. Frames to a guest that does not read them are dropped, as on a real wire.
type Switch struct {
	path     string // of the socket
	dir      string // holds it
	listener net.Listener
	workers  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ports map[*switchPort]bool
	where map[[6]byte]*switchPort
	shut  bool
}

type switchPort struct {
	conn net.Conn
	out  chan []byte
}

const (
	// maxEthernet bounds one frame, in bytes: QEMU may hand over a segment of 64 KiB and its headers.
	maxEthernet = 68 << 10
	// portQueue is how many frames may wait for a guest.
	portQueue = 512
)

// NewSwitch starts a switch without guests.
func NewSwitch() (*Switch, error) {
	dir, err := os.MkdirTemp("", "pvrdmad-sw")
	if err != nil {
		return nil, fmt.Errorf("start switch: %w", err)
	}
	s := &Switch{
		path: filepath.Join(dir, "sw"), dir: dir,
		ports: map[*switchPort]bool{}, where: map[[6]byte]*switchPort{},
	}
	if s.listener, err = net.Listen("unix", s.path); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("start switch: %w", err)
	}
	s.workers.Go(s.accept)
	return s, nil
}

// Close disconnects all guests and waits until nothing of the switch is left.
func (s *Switch) Close() {
	_ = s.listener.Close()
	s.mu.Lock()
	s.shut = true
	for port := range s.ports {
		_ = port.conn.Close()
	}
	s.mu.Unlock()
	s.workers.Wait()
	_ = os.RemoveAll(s.dir)
}

func (s *Switch) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		port := &switchPort{conn: conn, out: make(chan []byte, portQueue)}
		s.mu.Lock()
		if s.shut {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.ports[port] = true
		s.workers.Go(func() { s.receive(port) })
		s.workers.Go(port.transmit)
		s.mu.Unlock()
	}
}

// receive serves one guest until it disconnects. Nobody offers frames to a port that is not in ports, so it may close
// out once it has removed the port.
func (s *Switch) receive(port *switchPort) {
	r := bufio.NewReaderSize(port.conn, maxEthernet)
	for {
		frame, err := readEthernet(r)
		if err != nil {
			break
		}
		s.forward(port, frame)
	}
	_ = port.conn.Close()
	s.mu.Lock()
	delete(s.ports, port)
	for mac, at := range s.where {
		if at == port {
			delete(s.where, mac)
		}
	}
	close(port.out)
	s.mu.Unlock()
}

// readEthernet reads one frame with its length in front, big-endian, as QEMU's stream netdev sends it. The result
// includes the length.
func readEthernet(r io.Reader) ([]byte, error) {
	const minEthernet = 14 // two addresses and a type
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < minEthernet || size > maxEthernet {
		return nil, errors.New("ethernet frame of impossible size")
	}
	frame := make([]byte, 4+size)
	copy(frame, head[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

func (s *Switch) forward(from *switchPort, frame []byte) {
	to, src := [6]byte(frame[4:10]), [6]byte(frame[10:16])
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.where) < portQueue { // a guest that invents addresses fills no memory
		s.where[src] = from
	}
	if port := s.where[to]; port != nil && port != from {
		port.offer(frame)
		return
	}
	for port := range s.ports {
		if port != from {
			port.offer(frame)
		}
	}
}

func (p *switchPort) offer(frame []byte) {
	select {
	case p.out <- frame:
	default:
	}
}

func (p *switchPort) transmit() {
	for frame := range p.out {
		// After an error the reader is about to end too; the rest of the queue goes nowhere.
		_, _ = p.conn.Write(frame)
	}
}

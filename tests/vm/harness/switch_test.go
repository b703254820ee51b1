// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// station is a guest's end of the wire.
type station struct {
	t    *testing.T
	conn net.Conn
	mac  [6]byte
}

// plug connects one more station and returns when the switch knows of it: a frame that another one sends before that
// passes it by.
func plug(t *testing.T, s *Switch, last byte) station {
	t.Helper()
	ports := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.ports)
	}
	before := ports()
	conn, err := net.Dial("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for deadline := time.Now().Add(soon); ports() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the switch does not take the connection")
		}
	}
	return station{t, conn, [6]byte{0x52, 0x54, 0, 0x77, 0, last}}
}

func (s station) send(to [6]byte, payload string) {
	s.t.Helper()
	frame := append(append(to[:], s.mac[:]...), 0x88, 0xb5)
	frame = append(frame, payload...)
	frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	if _, err := s.conn.Write(frame); err != nil {
		s.t.Fatal(err)
	}
}

// receive returns the payload of the next frame, "" if none comes.
func (s station) receive(wait time.Duration) string {
	s.t.Helper()
	_ = s.conn.SetReadDeadline(time.Now().Add(wait))
	frame, err := readEthernet(s.conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return string(frame[4+14:])
}

const (
	soon  = Slow * 5 * time.Second
	never = 50 * time.Millisecond
)

var everyone = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func newSwitch(t *testing.T) *Switch {
	t.Helper()
	s, err := NewSwitch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestTheSwitchFloodsUntilItHasLearned(t *testing.T) {
	s := newSwitch(t)
	a, b, c := plug(t, s, 1), plug(t, s, 2), plug(t, s, 3)
	b.send(everyone, "here is b")
	if a.receive(soon) != "here is b" || c.receive(soon) != "here is b" {
		t.Fatal("a broadcast did not reach everyone")
	}

	a.send(b.mac, "to b")
	a.send(everyone, "to all")

	if got := b.receive(soon); got != "to b" {
		t.Errorf("b received %q, want what was sent to it", got)
	}
	if got := c.receive(soon); got != "to all" {
		t.Errorf("c received %q first, want only the broadcast", got)
	}
	if got := a.receive(never); got != "" {
		t.Errorf("a received its own %q", got)
	}
}

func TestAGuestThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	s := newSwitch(t)
	a, deaf, c := plug(t, s, 1), plug(t, s, 2), plug(t, s, 3)
	deaf.send(everyone, "I am here")
	a.receive(soon)
	c.receive(soon)
	big := string(bytes.Repeat([]byte("x"), 9000))

	for range 3 * portQueue {
		a.send(deaf.mac, big)
	}
	a.send(everyone, "still alive")

	if got := c.receive(soon); got != "still alive" {
		t.Errorf("c received %q, want the broadcast", got)
	}
}

func TestAGuestThatSendsGarbageIsDisconnectedAlone(t *testing.T) {
	s := newSwitch(t)
	a, b, bad := plug(t, s, 1), plug(t, s, 2), plug(t, s, 3)
	if _, err := bad.conn.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	_ = bad.conn.SetReadDeadline(time.Now().Add(soon))
	if _, err := bad.conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after a frame of 4 GiB: %v, want the end of the connection", err)
	}

	a.send(everyone, "hello")

	if got := b.receive(soon); got != "hello" {
		t.Errorf("b received %q, want hello", got)
	}
}

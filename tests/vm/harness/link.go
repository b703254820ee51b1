// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/agentproto"
)

// ErrReset says that the guest was reset while something ran in it.
var ErrReset = errors.New("guest was reset")

// boot is one life of the guest, from reset to reset.
type boot struct {
	conn    net.Conn
	began   time.Time
	session uint32           // valid once ready is closed
	hello   agentproto.Hello // valid once ready is closed
	took    time.Duration    // from began to hello; valid once ready is closed
	ready   chan struct{}    // closed when the agent has said hello
	over    chan struct{}    // closed when this life has ended
	err     error            // why; valid once over is closed
	streams map[uint32]*stream
}

// stream receives the frames of one script or file. Only the link's reader delivers.
type stream struct {
	deliver func(agentproto.Kind, []byte)
	exit    chan agentproto.Exit // has room for the one exit
}

// link is the connection to the agent in one guest, across resets.
type link struct {
	path string         // of the port's socket
	log  io.Writer      // a transcript for people
	work sync.WaitGroup // the readers

	// writing lets one frame go out at a time. It is not mu: the reader needs that while a write waits for the guest.
	writing sync.Mutex

	mu     sync.Mutex // guards what follows, the boots' streams and ends, and the log
	now    *boot
	nextID uint32
	shut   bool
}

// newLink connects to a port whose QEMU is running.
func newLink(path string, log io.Writer) (*link, error) {
	l := &link{path: path, log: log}
	if err := l.begin(); err != nil {
		return nil, err
	}
	return l, nil
}

// begin starts a new life. The connection is a new one, so no byte of the last life is in it.
func (l *link) begin() error {
	conn, err := net.Dial("unix", l.path)
	if err != nil {
		return fmt.Errorf("connect to agent port: %w", err)
	}
	b := &boot{
		conn:    conn,
		began:   time.Now(),
		ready:   make(chan struct{}),
		over:    make(chan struct{}),
		streams: map[uint32]*stream{},
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	l.now = b
	l.work.Go(func() { l.read(b) })
	return nil
}

// reset ends the guest's current life and begins the next.
func (l *link) reset() {
	l.logf("guest was reset")
	l.end(l.current(), ErrReset)
	if err := l.begin(); err != nil {
		l.logf("after reset: %v", err)
	}
}

// close ends the link for good: whoever waits gets cause.
func (l *link) close(cause error) {
	l.mu.Lock()
	l.shut = true
	l.mu.Unlock()
	l.end(l.current(), cause)
	l.work.Wait()
}

func (l *link) current() *boot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *link) end(b *boot, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-b.over:
	default:
		b.err = cause
		close(b.over)
		_ = b.conn.Close()
	}
}

func (l *link) read(b *boot) {
	for {
		frame, err := agentproto.Read(b.conn)
		if err == nil {
			err = l.receive(b, frame)
		}
		if err != nil {
			l.end(b, err)
			return
		}
	}
}

func (l *link) receive(b *boot, f agentproto.Frame) error {
	if f.Kind == agentproto.KindHello {
		return l.greet(b, f)
	}
	l.mu.Lock()
	s := b.streams[f.Stream]
	if f.Kind == agentproto.KindExit {
		delete(b.streams, f.Stream)
	}
	l.mu.Unlock()
	switch {
	case s == nil: // its caller has given up
		return nil
	case f.Kind != agentproto.KindExit:
		s.deliver(f.Kind, f.Payload)
		return nil
	}
	var exit agentproto.Exit
	if err := agentproto.Decode(f.Payload, &exit); err != nil {
		return err
	}
	s.exit <- exit
	return nil
}

func (l *link) greet(b *boot, f agentproto.Frame) error {
	var hello agentproto.Hello
	if err := agentproto.Decode(f.Payload, &hello); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-b.ready:
		return errors.New("the agent said hello twice without a reset between")
	default:
	}
	b.session, b.hello, b.took = f.Session, hello, time.Since(b.began)
	close(b.ready)
	return nil
}

// open gives a new stream of the boot b a number and its first frame.
func (l *link) open(b *boot, kind agentproto.Kind, payload []byte, s *stream) (uint32, error) {
	select {
	case <-b.ready:
	default:
		return 0, errors.New("guest is not ready")
	}
	l.mu.Lock()
	l.nextID++
	id := l.nextID
	b.streams[id] = s
	l.mu.Unlock()
	return id, l.send(b, id, kind, payload)
}

// sendLimit is how long the guest may leave a frame unread before its life counts as over.
const sendLimit = Slow * 10 * time.Second

func (l *link) send(b *boot, id uint32, kind agentproto.Kind, payload []byte) error {
	frame := agentproto.Frame{Session: b.session, Stream: id, Kind: kind, Payload: payload}
	l.writing.Lock()
	_ = b.conn.SetWriteDeadline(time.Now().Add(sendLimit))
	err := agentproto.Write(b.conn, frame)
	l.writing.Unlock()
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the agent reads nothing for %s: %w", sendLimit, err)
	}
	l.end(b, err) // half a frame may have gone out; or the life is over, and its reason stands
	return b.err
}

func (l *link) forget(b *boot, id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(b.streams, id)
}

func (l *link) logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.log, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}

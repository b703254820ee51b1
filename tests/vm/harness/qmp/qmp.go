// SPDX-License-Identifier: Apache-2.0

// Package qmp speaks to QEMU's monitor, as docs/interop/qmp-spec of QEMU describes. It may not know what runs in QEMU.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Client is one connection to a monitor. Its methods may be called from several goroutines.
type Client struct {
	conn   net.Conn
	done   chan struct{} // closed when the reader has ended
	mu     sync.Mutex    // guards what follows
	nextID int
	wait   map[int]chan message
	err    error // why the connection ended
}

// message is whatever QEMU sends: greeting, reply or event.
type message struct {
	QMP    json.RawMessage `json:"QMP"`
	ID     *int            `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
}

// ErrClosed says that the monitor's connection has ended, as it does when QEMU ends.
var ErrClosed = errors.New("qmp: connection has ended")

// greetingLimit is how long QEMU may take to greet: it does so before it builds the machine.
const greetingLimit = time.Minute

// NewClient takes over a connected monitor socket. onEvent is called with each event's name, one at a time, from the
// goroutine that reads the connection: it must not call Execute.
func NewClient(conn net.Conn, onEvent func(name string)) (*Client, error) {
	c := &Client{conn: conn, done: make(chan struct{}), wait: map[int]chan message{}}
	lines := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(greetingLimit))
	greeting, err := readMessage(lines)
	if err == nil && greeting.QMP == nil {
		err = errors.New("no greeting")
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("qmp: greet: %w", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	go c.read(lines, onEvent)
	ctx, cancel := context.WithTimeout(context.Background(), greetingLimit)
	defer cancel()
	if err := c.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func readMessage(r *bufio.Reader) (message, error) {
	var m message
	line, err := r.ReadBytes('\n')
	if err != nil {
		return m, fmt.Errorf("read: %w", err)
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return m, fmt.Errorf("decode %q: %w", line, err)
	}
	return m, nil
}

func (c *Client) read(lines *bufio.Reader, onEvent func(string)) {
	defer close(c.done)
	for {
		m, err := readMessage(lines)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				err = ErrClosed
			}
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
		switch {
		case m.Event != "":
			onEvent(m.Event)
		case m.ID != nil:
			c.mu.Lock()
			reply := c.wait[*m.ID]
			delete(c.wait, *m.ID)
			c.mu.Unlock()
			if reply != nil {
				reply <- m // has room for the one reply
			}
		}
	}
}

// Execute runs a command and decodes what it returns into result, unless that is nil.
func (c *Client) Execute(ctx context.Context, command string, arguments, result any) error {
	id, reply, err := c.send(command, arguments)
	if err != nil {
		return err
	}
	defer func() {
		c.mu.Lock()
		delete(c.wait, id)
		c.mu.Unlock()
	}()
	select {
	case m := <-reply:
		if m.Error != nil {
			return fmt.Errorf("qmp: %s: %s: %s", command, m.Error.Class, m.Error.Desc)
		}
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(m.Return, result); err != nil {
			return fmt.Errorf("qmp: %s: decode reply: %w", command, err)
		}
		return nil
	case <-c.done:
		return fmt.Errorf("qmp: %s: %w", command, c.err)
	case <-ctx.Done():
		return fmt.Errorf("qmp: %s: %w", command, context.Cause(ctx))
	}
}

func (c *Client) send(command string, arguments any) (int, chan message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID++
	request := map[string]any{"execute": command, "id": c.nextID}
	if arguments != nil {
		request["arguments"] = arguments
	}
	b, err := json.Marshal(request)
	if err != nil {
		return 0, nil, fmt.Errorf("qmp: encode %s: %w", command, err)
	}
	reply := make(chan message, 1)
	c.wait[c.nextID] = reply
	if _, err := c.conn.Write(append(b, '\n')); err != nil {
		delete(c.wait, c.nextID)
		return 0, nil, fmt.Errorf("qmp: send %s: %w", command, err)
	}
	return c.nextID, reply, nil
}

// Close ends the connection and waits for its goroutine. QEMU goes on.
func (c *Client) Close() {
	_ = c.conn.Close()
	<-c.done
}

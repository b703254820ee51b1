// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/agentproto"
)

// transfer is a file on its way.
type transfer struct {
	guest  *Guest
	boot   *boot
	id     uint32
	stream *stream
	name   string // operation and path, for errors
}

// Put writes a file in the guest.
func (g *Guest) Put(ctx context.Context, path string, mode fs.FileMode, from io.Reader) error {
	t, err := g.begin(agentproto.KindPut, "put", agentproto.File{Path: path, Mode: uint32(mode.Perm())},
		func(agentproto.Kind, []byte) {})
	buf := make([]byte, agentproto.MaxPayload)
	for err == nil {
		n, readErr := from.Read(buf)
		if n > 0 {
			err = g.link.send(t.boot, t.id, agentproto.KindData, buf[:n])
		}
		if errors.Is(readErr, io.EOF) {
			break
		}
		err = errors.Join(err, readErr, context.Cause(ctx))
	}
	if err == nil {
		err = g.link.send(t.boot, t.id, agentproto.KindEnd, nil)
	}
	return t.wait(ctx, err)
}

// Get copies a file out of the guest.
func (g *Guest) Get(ctx context.Context, path string, to io.Writer) error {
	var writeErr error // written by the link's reader before it sends the exit
	t, err := g.begin(agentproto.KindGet, "get", agentproto.File{Path: path}, func(_ agentproto.Kind, p []byte) {
		if writeErr == nil {
			_, writeErr = to.Write(p)
		}
	})
	if err := t.wait(ctx, err); err != nil {
		return err
	}
	return writeErr
}

func (g *Guest) begin(kind agentproto.Kind, op string, file agentproto.File, deliver func(agentproto.Kind, []byte)) (
	transfer, error,
) {
	t := transfer{
		guest:  g,
		boot:   g.link.current(),
		stream: &stream{deliver: deliver, exit: make(chan agentproto.Exit, 1)},
		name:   op + " " + file.Path,
	}
	var err error
	t.id, err = g.link.open(t.boot, kind, agentproto.Encode(file), t.stream)
	return t, err
}

// wait waits for the agent's verdict, unless the transfer has failed with err before.
func (t transfer) wait(ctx context.Context, err error) error {
	if err == nil {
		select {
		case exit := <-t.stream.exit:
			if exit.Err != "" {
				err = errors.New(exit.Err)
			}
		case <-t.boot.over:
			err = t.boot.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	t.guest.link.forget(t.boot, t.id)
	if err != nil {
		return fmt.Errorf("guest %s: %s: %w", t.guest.config.Name, t.name, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/agentproto"
)

// put is a file on its way into the guest.
type put struct {
	file *os.File
	err  error // the first thing that went wrong
}

func (w *work) beginPut(f agentproto.Frame) {
	var request agentproto.File
	p := &put{}
	if p.err = agentproto.Decode(f.Payload, &request); p.err == nil {
		mode := fs.FileMode(request.Mode).Perm()
		p.file, p.err = os.OpenFile(request.Path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	}
	w.puts[f.Stream] = p
}

func (w *work) continuePut(f agentproto.Frame) {
	p := w.puts[f.Stream]
	if p == nil {
		return // its stream has ended
	}
	if f.Kind == agentproto.KindData {
		if p.err == nil {
			_, p.err = p.file.Write(f.Payload)
		}
		return
	}
	delete(w.puts, f.Stream)
	if p.file != nil {
		if err := p.file.Close(); p.err == nil {
			p.err = err
		}
	}
	w.port.sendExit(f.Stream, exitFor(p.err))
}

func (w *work) get(f agentproto.Frame) {
	var request agentproto.File
	err := agentproto.Decode(f.Payload, &request)
	if err == nil {
		err = w.sendFile(f.Stream, request.Path)
	}
	w.port.sendExit(f.Stream, exitFor(err))
}

func (w *work) sendFile(stream uint32, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("get file: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := io.Copy(output{w.port, stream, agentproto.KindData}, file); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

func exitFor(err error) agentproto.Exit {
	if err != nil {
		return agentproto.Exit{Status: -1, Err: err.Error()}
	}
	return agentproto.Exit{}
}

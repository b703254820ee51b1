// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

const (
	// roleVariable makes this test binary a guest in a process of its own; socketVariable says where its device is.
	roleVariable   = "SPINE_ROLE"
	socketVariable = "SPINE_SOCKET"

	// writerRole is a guest that writes to its peer until it is killed.
	writerRole = "writer"
)

// runRole is the guest's process: it tells its parent its address in a line, reads the peer's, and writes.
func runRole(role string) int {
	if role != writerRole {
		fmt.Fprintln(os.Stderr, "unknown role", role)
		return 2
	}
	if err := writeForever(os.Getenv(socketVariable), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// roleT stands in for a test where there is none: what fails ends the process.
type roleT struct{ testing.TB }

func (roleT) Helper()        {}
func (roleT) Cleanup(func()) {} // nobody cleans up after a process that is killed

func (roleT) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

func (roleT) Fatalf(format string, args ...any) { roleT{}.Fatal(fmt.Sprintf(format, args...)) }

func writeForever(socket string, in io.Reader, out io.Writer) error {
	t := roleT{}
	e := testguest.Start(t, socket, guestOptions("a")).Open().Endpoint(testguest.Shape{Bytes: 4 * stormSize})
	if err := json.NewEncoder(out).Encode(e.Address()); err != nil {
		return err
	}
	var peer testguest.Address
	if err := json.NewDecoder(in).Decode(&peer); err != nil {
		return err
	}
	e.ConnectTo(peer)
	for i := uint64(0); ; i++ {
		testguest.Pattern{Seed: 8, Iteration: i}.Fill(e.MR.Mem[:stormSize])
		if err := e.QP.PostSend(e.Op("RDMA_WRITE", peer, 0, stormSize)); err != nil {
			return err
		}
		wc, err := e.SendCQ.Wait(verbs.Polled, testguest.Patience)
		if err != nil || wc.Status != 0 {
			return fmt.Errorf("write %d: status %d, error %w", i, wc.Status, err)
		}
	}
}

// child is a guest in a process of its own.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	// Address is its endpoint's.
	testguest.Address
}

// startChild starts a writer that is connected once connect was called.
func startChild(t *testing.T, socket string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+writerRole, socketVariable+"="+socket)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the guest's process says nothing: %v", err)
	}
	if err := json.Unmarshal(line, &c.Address); err != nil {
		t.Fatal(err)
	}
	return c
}

// connect tells the process its peer; it writes from then on.
func (c *child) connect(t *testing.T, peer testguest.Address) {
	t.Helper()
	if err := json.NewEncoder(c.in).Encode(peer); err != nil {
		t.Fatal(err)
	}
}

// kill ends the process as the kernel ends a virtual machine that ran out of memory.
func (c *child) kill() {
	if c.cmd.ProcessState != nil {
		return
	}
	_ = c.cmd.Process.Kill() // it may have ended by itself
	_ = c.cmd.Wait()         // it was killed
}

// killAfter waits a while first.
func (c *child) killAfter(d time.Duration) {
	time.Sleep(d)
	c.kill()
}

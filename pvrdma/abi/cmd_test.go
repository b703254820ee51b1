// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/linuxsource"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

func TestAckIsTheHeadersResponseCode(t *testing.T) {
	l := mustLayout(t)
	codes := map[string]uint32{}
	noop := map[string]bool{}
	for name, v := range l.Enums["first:PVRDMA_CMD_FIRST_RESP"] {
		short, isNoop := strings.CutSuffix(strings.TrimPrefix(name, "PVRDMA_CMD_"), "_RESP_NOOP")
		short = strings.TrimSuffix(short, "_RESP")
		codes[short], noop[short] = v, isNoop
	}
	for c := range abi.CmdMax {
		want, ok := codes[c.String()]
		if !ok || c.Ack() != want {
			t.Errorf("%v: Ack is %#x, the header has %#x", c, c.Ack(), want)
		}
		if c.Noop() != noop[c.String()] {
			t.Errorf("%v: Noop is %v, the header's name says %v", c, c.Noop(), noop[c.String()])
		}
		delete(codes, c.String())
	}
	delete(codes, "FIRST")
	delete(codes, "MAX")
	if len(codes) != 0 {
		t.Errorf("response codes without a command: %v", codes)
	}
}

// The driver's source says for each command whether it passes a place for the response.
func TestAwaitsResponseIsWhatTheDriverDoes(t *testing.T) {
	tree, err := linuxsource.Tree()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(tree, driverDir, "*.c"))
	if err != nil {
		t.Fatal(err)
	}
	// From the assignment of the command to the end of the call that sends it.
	call := regexp.MustCompile(`(?s)hdr\.cmd = PVRDMA_CMD_(\w+);.*?pvrdma_cmd_post\(([^;]*)\);`)
	driver := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			driver[m[1]] = strings.Join(strings.Fields(m[2]), " ")
		}
	}

	for c := range abi.CmdMax {
		args, sent := driver[c.String()]
		delete(driver, c.String())
		waits := strings.HasSuffix(args, ", &rsp, PVRDMA_CMD_"+c.String()+"_RESP")
		forgets := strings.HasSuffix(args, ", NULL, 0")
		switch {
		case !sent && c == abi.CmdResizeCQ:
		case !sent || waits == forgets:
			t.Errorf("%v: cannot tell from the driver's call (%s)", c, args)
		case c.AwaitsResponse() != waits:
			t.Errorf("%v: AwaitsResponse is %v, the driver calls with (%s)", c, c.AwaitsResponse(), args)
		}
	}
	if len(driver) != 0 {
		t.Errorf("commands that are not in the header: %v", driver)
	}
}

func TestOnlyTheHeadersCommandsAreValid(t *testing.T) {
	for _, tc := range []struct {
		c    abi.Cmd
		want bool
	}{
		{abi.CmdFirst, true},
		{abi.CmdDestroySRQ, true},
		{abi.CmdMax, false},
		{0xffffffff, false},
	} {
		if got := tc.c.Valid(); got != tc.want {
			t.Errorf("%v: Valid is %v", tc.c, got)
		}
		if !tc.want && (tc.c.AwaitsResponse() || tc.c.Noop() || tc.c.ReqSize() != 0) {
			t.Errorf("%v is no command and has a response or a size", tc.c)
		}
	}
}

func TestPeekCmdReadsTheCommandOfAnyRequest(t *testing.T) {
	b := make([]byte, abi.CmdReqSize)
	(&abi.CmdDestroyQPReq{Hdr: abi.CmdHeader{Cmd: abi.CmdDestroyQP}, QPHandle: 7}).Encode(b)

	c, err := abi.PeekCmd(b)
	if c != abi.CmdDestroyQP || err != nil {
		t.Errorf("PeekCmd = %v, %v", c, err)
	}
	if _, err := abi.PeekCmd(b[:abi.CmdHeaderSize-1]); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("PeekCmd of 15 bytes: %v", err)
	}
}

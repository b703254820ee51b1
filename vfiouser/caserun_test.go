// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// program is a running caseserver, which is asked for its state.
type program struct {
	path  string
	in    io.WriteCloser
	lines *bufio.Scanner
}

// programState is a status line of caseserver, see testdata/cases.md.
type programState struct {
	FDs          int            `json:"fds"`
	Goroutines   int            `json:"goroutines"`
	Connected    int            `json:"connected"`
	Busy         int            `json:"busy"`
	Disconnected map[string]int `json:"disconnected"`
	Refused      map[string]int `json:"refused"`
	Panics       int            `json:"panics"`
}

// startProgram builds and starts caseserver.
func startProgram(t *testing.T) *program {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "caseserver")
	if out, err := exec.Command("go", "build", "-o", binary, "./internal/caseserver").CombinedOutput(); err != nil {
		t.Fatalf("build caseserver: %v\n%s", err, out)
	}
	p := &program{path: filepath.Join(dir, "s")}
	cmd := exec.Command(binary, p.path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("caseserver: %v", err)
		}
	})
	p.in, p.lines = in, bufio.NewScanner(out)
	if !p.lines.Scan() || p.lines.Text() != "ready" {
		t.Fatalf("caseserver says %q", p.lines.Text())
	}
	return p
}

// state asks for the program's state.
func (p *program) state(t testing.TB) programState {
	t.Helper()
	if _, err := p.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if !p.lines.Scan() {
		t.Fatalf("caseserver is gone: %v", p.lines.Err())
	}
	var s programState
	if err := json.Unmarshal(p.lines.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// holds waits until the program has as many file descriptors and goroutines as in an earlier state.
func (p *program) holds(t testing.TB, want programState) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		got := p.state(t)
		if got.FDs == want.FDs && got.Goroutines == want.Goroutines {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the program has %d file descriptors and %d goroutines, want %d and %d",
				got.FDs, got.Goroutines, want.FDs, want.Goroutines)
		}
	}
}

// scenario is a case of testdata/sequences.tsv. It returns the answer that the
// row is about, as the column has it.
type scenario struct {
	id  string
	run func(t *testing.T, p *program, c *client) string
}

// scenarios returns all of them.
func scenarios() []scenario {
	return slices.Concat(versionScenarios(), infoScenarios(), accessScenarios(), multiScenarios(), memoryScenarios(),
		irqScenarios(), maskScenarios(), resetScenarios(), connectionScenarios(), streamScenarios())
}

const (
	success  = "success"
	noAnswer = "none"
)

// said returns a reply as the column "answer" has it.
func said(r reply) string {
	if r.errno == 0 {
		return success
	}
	return answerWord(unix.Errno(r.errno))
}

// scenarioOf makes a badFrame a scenario.
func scenarioOf(b badFrame) scenario {
	return scenario{b.id, func(t *testing.T, p *program, c *client) string {
		for range b.files {
			b.frame.fds = append(b.frame.fds, newEventFD(t))
		}
		held := p.state(t)
		c.send(b.frame)
		got := noAnswer
		if b.errno != 0 {
			got = said(c.answer(b.frame.command))
		}
		if !b.ends {
			c.alive()
			p.holds(t, held)
		}
		return got
	}}
}

// play plays a case against the program and checks the columns of its row.
func (p *program) play(t *testing.T, r row, s scenario) {
	before := p.state(t)
	c := dial(t, p.path)
	if r.state == "open" {
		c.handshake()
	}

	got := s.run(t, p, c)

	if got != r.answer {
		t.Errorf("the answer is %s, want %s", got, r.answer)
	}
	switch r.connection {
	case "closed":
		c.ended()
	case "open":
		c.alive()
	}
	c.close()
	p.holds(t, before)
	after := p.state(t)
	moved := maps.Clone(after.Refused)
	for fault, n := range before.Refused {
		if moved[fault] -= n; moved[fault] == 0 {
			delete(moved, fault)
		}
	}
	want := map[string]int{}
	if r.counter != "-" {
		want[r.counter] = 1
	}
	if !maps.Equal(moved, want) {
		t.Errorf("refused: %v, want %v", moved, want)
	}
}

func TestEveryCaseOfTheListIsPlayedAgainstAServerInAnotherProcess(t *testing.T) {
	p := startProgram(t)
	sequences, frames := rows(t, sequencesFile), rows(t, framesFile)
	for _, s := range scenarios() {
		t.Run(s.id, func(t *testing.T) { p.play(t, sequences[s.id], s) })
	}
	for _, b := range slices.Concat(openFaults(), handshakeFaults()) {
		t.Run(b.id, func(t *testing.T) { p.play(t, frames[b.id], scenarioOf(b)) })
	}
}

// Registers of BAR1, testdata/cases.md.
const (
	regWrites, regDigest, regMappings, regResets = 0x00, 0x04, 0x08, 0x0c
	regRaise, regRefuse, regPanic                = 0x10, 0x14, 0x18
)

// poke returns a write of a register.
func poke(off uint64, value uint32) frame {
	return writeFrame(RegionBAR1, off, binary.LittleEndian.AppendUint32(nil, value)...)
}

// raise has the device raise an interrupt.
func (c *client) raise(index IRQIndex, vector uint32) {
	c.t.Helper()
	c.must(poke(regRaise, uint32(index)<<16|vector))
}

// wantRegister checks a register.
func (c *client) wantRegister(off uint64, want uint32) {
	c.t.Helper()
	data := c.read(RegionBAR1, off, 4)
	if got := binary.LittleEndian.Uint32(data); got != want {
		c.t.Errorf("register %#x is %d, want %d", off, got, want)
	}
}

// read returns the data of a REGION_READ.
func (c *client) read(index RegionIndex, off uint64, count uint32) []byte {
	c.t.Helper()
	got := c.must(readFrame(index, off, count)).body
	if want := (access{off, index, count}).append(nil); len(got) != len(want)+int(count) || !slices.Equal(got[:len(want)], want) {
		c.t.Errorf("the reply to a read of %s at %#x begins with %v", index, off, got[:min(len(got), len(want))])
	}
	return got[regionAccessSize:]
}

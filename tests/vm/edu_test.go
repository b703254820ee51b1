// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

// qtest speaks QEMU's qtest protocol: a processor's accesses without a processor. QEMU connects to us.
type qtest struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Scanner
}

// do sends a command and returns what follows OK.
func (q *qtest) do(format string, args ...any) string {
	q.t.Helper()
	command := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(q.conn, command); err != nil {
		q.t.Fatal(err)
	}
	for q.in.Scan() {
		if strings.HasPrefix(q.in.Text(), "IRQ") {
			continue
		}
		answer, ok := strings.CutPrefix(q.in.Text(), "OK")
		if !ok {
			q.t.Fatalf("%s: %s", command, q.in.Text())
		}
		return strings.TrimSpace(answer)
	}
	q.t.Fatalf("%s: QEMU is gone: %v", command, q.in.Err())
	return ""
}

// number is do for a command that answers with a number.
func (q *qtest) number(format string, args ...any) uint64 {
	q.t.Helper()
	v, err := strconv.ParseUint(q.do(format, args...), 0, 64)
	if err != nil {
		q.t.Fatal(err)
	}
	return v
}

// eduBDF is where the device is on the PCI bus, as the configuration address port has it: slot 5.
const eduBDF = 1<<31 | 5<<11

func (q *qtest) readConfig(off uint32) uint64 {
	q.t.Helper()
	q.do("outl 0xcf8 %#x", eduBDF|off)
	return q.number("inl 0xcfc")
}

func (q *qtest) writeConfig(off, v uint32) {
	q.t.Helper()
	q.do("outl 0xcf8 %#x", eduBDF|off)
	q.do("outl 0xcfc %#x", v)
}

// startEdu serves the example's device and gives it to a QEMU that runs no guest.
func startEdu(t *testing.T) (q *qtest, messages func() string) {
	t.Helper()
	dir := t.TempDir()
	binary, socket := filepath.Join(dir, "edu"), filepath.Join(dir, "edu.sock")
	if out, err := exec.Command("go", "build", "-o", binary, "../../vfiouser/examples/edu").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "messages"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	messages = func() string {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	run := func(path string, args ...string) {
		cmd := exec.Command(path, args...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	run(binary, socket)
	for deadline := time.Now().Add(harness.Slow * 10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the example does not listen: %s", messages())
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "qtest"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	run(images.QEMU, "-machine", "q35,memory-backend=mem", "-accel", "qtest", "-nodefaults", "-display", "none",
		"-object", "memory-backend-memfd,id=mem,size=64M,share=on", "-qtest", "unix:"+l.Addr().String(), "-qtest-log", "none",
		"-device", `{"driver":"vfio-user-pci","addr":"5.0","socket":{"type":"unix","path":"`+socket+`"}}`)
	_ = l.(*net.UnixListener).SetDeadline(time.Now().Add(harness.Slow * 20 * time.Second))
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("QEMU does not connect: %v: %s", err, messages())
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(harness.Slow * 30 * time.Second))
	return &qtest{t, conn, bufio.NewScanner(conn)}, messages
}

func TestTheExampleOfAnotherDeviceWorksInQEMU(t *testing.T) {
	const bar = 0xe0000000
	q, messages := startEdu(t)
	if id, class := q.readConfig(0), q.readConfig(8); id != 0x11e81234 || class != 0x00ff0010 {
		t.Errorf("the device is %#x of class %#x", id, class)
	}
	q.writeConfig(0x10, 0xffffffff)
	if size := q.readConfig(0x10); size != 0xfff00000 {
		t.Errorf("the BAR sizes as %#x", size)
	}
	q.writeConfig(0x10, bar)
	q.writeConfig(4, 6) // memory, bus master

	q.do("writel %#x 0x12345678", bar+4)
	if v := q.number("readl %#x", bar+4); v != 0xedcba987 {
		t.Errorf("the liveness register is %#x", v)
	}
	q.do("writel %#x 10", bar+8)
	if v := q.number("readl %#x", bar+8); v != 3628800 {
		t.Errorf("10! is %d", v)
	}
	q.do("write 0x100000 8 0x0102030405060708")
	for _, w := range []struct{ source, dest, command uint64 }{{0x100000, 0x40000, 1}, {0x40000, 0x200000, 3}} {
		q.do("writeq %#x %#x", bar+0x80, w.source)
		q.do("writeq %#x %#x", bar+0x88, w.dest)
		q.do("writeq %#x 8", bar+0x90)
		q.do("writel %#x %#x", bar+0x98, w.command)
		q.number("readl %#x", bar) // after the copy
	}
	if got := q.do("read 0x200000 8"); got != "0x0102030405060708" {
		t.Errorf("DMA brought back %s", got)
	}
	if said := messages(); said != "" {
		t.Errorf("said: %s", said)
	}
}

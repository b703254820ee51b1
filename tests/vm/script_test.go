// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

// scriptsAndFiles runs them all at the same time in one guest: they must not disturb each other.
func scriptsAndFiles(t *testing.T, guest *harness.Guest) {
	for name, test := range map[string]func(*testing.T, *harness.Guest){
		"a script's status and output come back":                 statusAndOutput,
		"binary output arrives byte for byte":                    binaryOutput,
		"two scripts run at the same time":                       twoAtATime,
		"a hung script is killed at its time limit":              hungScript,
		"children that left the session are killed with it":      escapedChildren,
		"a script can be killed":                                 killedScript,
		"a script can be awaited until it says something":        awaitedScript,
		"files go in and come back":                              files,
		"a file that cannot be written or read is an error":      badFiles,
		"a script that dies by a signal says so":                 dyingScript,
		"more output than is kept is cut, and the script ends":   tooMuchOutput,
		"what a script writes after its end of life is not kept": silenceAfterEnd,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, guest)
		})
	}
}

func statusAndOutput(t *testing.T, guest *harness.Guest) {
	got, err := guest.Run(within(t, 10*time.Second), "echo out; echo err >&2; exit 3")
	if want := (harness.Result{Status: 3, Stdout: "out\n", Stderr: "err\n"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func awaitedScript(t *testing.T, guest *harness.Guest) {
	talking := start(t, guest, 20*time.Second, "echo one; sleep 0.5; echo two; sleep 100")
	if err := talking.Await(within(t, 10*time.Second), "two"); err != nil {
		t.Error(err)
	}
	if stdout, _ := talking.Output(); stdout != "one\ntwo\n" {
		t.Errorf("it said %q", stdout)
	}
	if err := talking.Await(within(t, 100*time.Millisecond), "three"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("awaiting what it does not say: %v", err)
	}
	if err := talking.Kill(); err != nil {
		t.Error(err)
	}
	silent := start(t, guest, 20*time.Second, "echo four; exit 3")
	if err := silent.Await(within(t, 10*time.Second), "five"); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("awaiting the words of a script that has ended: %v", err)
	}
}

func binaryOutput(t *testing.T, guest *harness.Guest) {
	const script = "for b in {0..255}; do printf \"\\\\x$(printf %02x $b)\"; done; head -c 300000 /dev/zero"
	got, err := guest.Run(within(t, 30*time.Second), script)
	var want []byte
	for b := range 256 {
		want = append(want, byte(b))
	}
	want = append(want, make([]byte, 300000)...)
	if err != nil || got.Stdout != string(want) {
		t.Errorf("got %d bytes, %v, want %d; equal: %v", len(got.Stdout), err, len(want), got.Stdout == string(want))
	}
}

func twoAtATime(t *testing.T, guest *harness.Guest) {
	output(t, guest, 5*time.Second, "mkfifo /run/there /run/back")
	// Each waits for the other, so one after the other they would never end.
	var both sync.WaitGroup
	for _, script := range []string{"echo x >/run/there; cat /run/back", "cat /run/there; echo y >/run/back"} {
		both.Go(func() {
			if r, err := guest.Run(within(t, 20*time.Second), script); err != nil || r.Status != 0 {
				t.Errorf("%s: %+v, %v", script, r, err)
			}
		})
	}
	both.Wait()
}

func hungScript(t *testing.T, guest *harness.Guest) {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	got, err := guest.Run(ctx, "trap '' TERM INT HUP; echo before; while :; do sleep 100; done")
	if !errors.Is(err, harness.ErrTimeLimit) || got.Stdout != "before\n" {
		t.Errorf("got %+v, %v, want ErrTimeLimit and what it wrote before", got, err)
	}
	if took := time.Since(begin); took < limit-100*time.Millisecond || took > 40*limit {
		t.Errorf("it took %s to end a script with a limit of %s", took, limit)
	}
}

func escapedChildren(t *testing.T, guest *harness.Guest) {
	output(t, guest, 10*time.Second, "setsid sleep 4321 >/dev/null 2>&1 </dev/null & sleep 0.2")
	if out := output(t, guest, 10*time.Second, "sleep 0.5; pgrep -f 'sleep 432[1]' || :"); out != "" {
		t.Errorf("a child lives on after its script: %s", out)
	}
}

func killedScript(t *testing.T, guest *harness.Guest) {
	s := start(t, guest, time.Minute, "echo up; sleep 50")
	for out := ""; out == ""; out, _ = s.Output() {
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Wait(t.Context()); err != nil || got.Signal != 9 {
		t.Errorf("got %+v, %v, want signal 9", got, err)
	}
}

func files(t *testing.T, guest *harness.Guest) {
	data := make([]byte, 3<<20+17)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	if err := guest.Put(within(t, 30*time.Second), "/tmp/data", 0o600, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x 600", sha256.Sum256(data))
	if out := output(t, guest, 20*time.Second, "echo $(sha256sum </tmp/data | cut -d' ' -f1) $(stat -c %a /tmp/data)"); out != want {
		t.Errorf("in the guest: %s, want %s", out, want)
	}
	var back bytes.Buffer
	if err := guest.Get(within(t, 30*time.Second), "/tmp/data", &back); err != nil || !bytes.Equal(back.Bytes(), data) {
		t.Errorf("got %d bytes back, %v, want the %d that went in", back.Len(), err, len(data))
	}
}

func badFiles(t *testing.T, guest *harness.Guest) {
	ctx := within(t, 20*time.Second)
	if err := guest.Put(ctx, "/no/such/dir/x", 0o600, strings.NewReader("x")); err == nil {
		t.Error("a file was put into a directory that does not exist")
	}
	if err := guest.Get(ctx, "/no/such/file", &bytes.Buffer{}); err == nil {
		t.Error("a file was got that does not exist")
	}
}

func dyingScript(t *testing.T, guest *harness.Guest) {
	if got, err := guest.Run(within(t, 10*time.Second), "kill -SEGV $$"); err != nil || got.Signal != 11 || got.Status != -1 {
		t.Errorf("got %+v, %v, want signal 11", got, err)
	}
}

func tooMuchOutput(t *testing.T, guest *harness.Guest) {
	got, err := guest.Run(within(t, time.Minute), "head -c 20000000 /dev/zero; echo end >&2")
	if err != nil || len(got.Stdout) != harness.MaxOutput || got.Stderr != "end\n" {
		t.Errorf("got %d bytes and %q, %v, want %d bytes and the end", len(got.Stdout), got.Stderr, err, harness.MaxOutput)
	}
}

func silenceAfterEnd(t *testing.T, guest *harness.Guest) {
	got, err := guest.Run(within(t, 10*time.Second), "(sleep 1; echo late) & echo now")
	if err != nil || got.Stdout != "now\n" {
		t.Errorf("got %+v, %v, want only what the script wrote itself", got, err)
	}
}

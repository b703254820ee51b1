// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestThePayloadChecksLastLineIsRead(t *testing.T) {
	got, err := parseResult("pvcheck: client: x\npvcheck: PASS ops=SEND messages=40 bytes_compared=1234 p50_us=17.5\n")
	if want := (result{messages: 40, bytes: 1234, p50: "17.5"}); err != nil || got != want {
		t.Errorf("result is %+v, %v, want %+v", got, err, want)
	}
}

func TestARunThatComparedNothingIsNoPass(t *testing.T) {
	for _, out := range []string{
		"", "pvcheck: FAIL op=SEND", "pvcheck: PASS ops=SEND messages=0 bytes_compared=0 p50_us=1",
		"pvcheck: PASS ops=SEND messages=4 bytes_compared=0 p50_us=1", "pvcheck: PASS\nKilled",
	} {
		if r, err := parseResult(out); err == nil {
			t.Errorf("%q passed as %+v", out, r)
		}
	}
}

func TestAnErrorOfManyLinesFitsOne(t *testing.T) {
	if got := oneLine(errors.New("first\nsecond\nthird\n")); got != "first ... third" {
		t.Errorf("line is %q", got)
	}
}

func TestAStageThatTakesTooLongSaysWhatToDo(t *testing.T) {
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := (stage{"s", "", time.Millisecond, waits}).within(t.Context()); err == nil || !strings.Contains(err.Error(), "Run it again") {
		t.Errorf("error %v, want what to do", err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("interrupted"))
	if err := (stage{"s", "", time.Hour, waits}).within(ended); err == nil || err.Error() != "interrupted" {
		t.Errorf("error %v, want what ended all", err)
	}
}

func TestThePictureFitsATerminal(t *testing.T) {
	var b strings.Builder
	newScreen(&b).picture(traffic{messages: 1 << 62, bytes: 1 << 62})
	if n := len(strings.TrimSpace(b.String())); n > columns {
		t.Errorf("the line has %d columns, more than %d: %q", n, columns, b.String())
	}
}

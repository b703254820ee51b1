// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"
)

// closeTimeout is more than any test's log needs to be written.
const closeTimeout = 5 * time.Second

func TestABurstGoesThroughAndThenALineForEachSecond(t *testing.T) {
	b := newBucket(3, 1)
	now := time.Now()
	type result struct {
		OK         bool
		Suppressed uint64
	}
	var got []result
	take := func(after time.Duration) {
		now = now.Add(after)
		ok, n := b.take(now)
		got = append(got, result{ok, n})
	}
	for range 5 {
		take(0)
	}
	take(500 * time.Millisecond)
	take(500 * time.Millisecond)
	take(0)
	take(-time.Hour)
	take(2 * time.Hour)
	want := []result{
		{true, 0}, {true, 0}, {true, 0}, {false, 0}, {false, 0}, {false, 0}, {true, 3}, {false, 0}, {false, 0}, {true, 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines differ (-want +got):\n%s", diff)
	}
}

func TestNeverMoreLinesThanTheBurstAndTheRateAndNoneIsForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBucket(5, 2)
		start := time.Now()
		now := start
		var through, asked, reported uint64
		for _, ms := range rapid.SliceOfN(rapid.IntRange(0, 2000), 1, 200).Draw(t, "pauses") {
			now = now.Add(time.Duration(ms) * time.Millisecond)
			asked++
			if ok, n := b.take(now); ok {
				through++
				reported += n
			}
		}
		if most := 5 + 2*now.Sub(start).Seconds(); float64(through) > most+1e-6 {
			t.Fatalf("%d lines in %v, want at most %v", through, now.Sub(start), most)
		}
		if through+reported+b.suppressed != asked {
			t.Fatalf("%d written and %d reported of %d asked, %d pending", through, reported, asked, b.suppressed)
		}
	})
}

func TestAMillionWarningsOfOneGuestAreABoundedNumberOfBytes(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(LogConfig{Level: "info", Output: &out})
	tel := New(log, Build{})
	now := time.Now()
	flooding, other := tel.AddGuest(GuestInfo{Name: "a"}), tel.AddGuest(GuestInfo{Name: "b"})
	flooding.log.now = func() time.Time { return now }
	err := errors.New(strings.Repeat("\n\x1b", 5000))
	for range 1_000_000 {
		flooding.log.emit(hclog.Warn, "bad", "error", quoted(err))
	}
	now = now.Add(time.Second)
	flooding.log.emit(hclog.Warn, "last")
	other.log.emit(hclog.Error, "heard")
	log.Close(closeTimeout)

	text := out.String()
	if n := strings.Count(text, "\n"); n != loudBurst+2 || len(text) > (loudBurst+2)*4*maxErrorLen {
		t.Errorf("%d lines, %d bytes; want %d lines", n, len(text), loudBurst+2)
	}
	want := fmt.Sprintf("last: guest=a suppressed=%d", 1_000_000-loudBurst)
	if !strings.Contains(text, want) || !strings.Contains(text, "heard: guest=b") {
		t.Errorf("log has no %q or nothing of guest b: %.300s", want, text)
	}
	if strings.Contains(text, "\x1b") {
		t.Error("control characters of a guest are in the log as they are")
	}
	if n := testutil.ToFloat64(tel.metrics.suppressed.WithLabelValues("a")); n != 1_000_000-loudBurst {
		t.Errorf("%v lines counted as suppressed, want %d", n, 1_000_000-loudBurst)
	}
}

func TestChatterDoesNotHideAWarning(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(LogConfig{Level: "debug", Output: &out})
	l := newBoundedLog(log, time.Now, prometheus.NewCounter(prometheus.CounterOpts{}))
	for range 5000 {
		l.emit(hclog.Debug, "chatter")
		l.emit(hclog.Info, "news")
	}
	l.emit(hclog.Warn, "warning")
	log.Close(closeTimeout)
	if !strings.Contains(out.String(), "warning") {
		t.Error("the warning is not in the log")
	}
}

// stuck is an output whose reader has stopped reading.
type stuck struct {
	release chan struct{}
	mu      sync.Mutex
	out     bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.release
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func TestALogThatNobodyReadsHoldsUpNobodyAndItsLossesAreCounted(t *testing.T) {
	out := &stuck{release: make(chan struct{})}
	log := NewLog(LogConfig{Level: "info", Output: out})
	start := time.Now()
	const lines = maxQueuedLines + 500
	for range lines {
		log.Info("line")
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("logging took %v while nobody read", d)
	}
	log.Close(time.Millisecond) // gives up
	log.Info("after the end")
	dropped := log.writer.dropped.Load()
	if dropped < 499 || dropped > 502 {
		t.Errorf("%d lines dropped, want about 500", dropped)
	}
	close(out.release)
	log.Close(closeTimeout)
	out.mu.Lock()
	defer out.mu.Unlock()
	if n := strings.Count(out.out.String(), "line\n"); n+int(dropped)-1 != lines {
		t.Errorf("%d lines written and %d dropped of %d", n, dropped-1, lines)
	}
	if want := fmt.Sprintf("log lines were dropped: count=%d\n", dropped); !strings.HasSuffix(out.out.String(), want) {
		t.Errorf("log ends with %q, want %q", out.out.String()[out.out.Len()-80:], want)
	}
}

func TestTheJournalGetsPrioritiesAndNoTimes(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(LogConfig{Level: "trace", Journal: true, Output: &out})
	log.Error("e")
	log.Warn("w")
	log.Info("i")
	log.Debug("d", "k", hclog.Quote("a\nb"))
	log.Trace("t")
	log.Close(closeTimeout)
	want := "<3>[ERROR] pvrdmad: e\n<4>[WARN]  pvrdmad: w\n<6>[INFO]  pvrdmad: i\n<7>[DEBUG] pvrdmad: d: k=\"a\\nb\"\n" +
		"<7>[TRACE] pvrdmad: t\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("log differs (-want +got):\n%s", diff)
	}
}

func TestEveryLineOfAJSONLogIsAnObject(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(LogConfig{Level: "info", JSON: true, Output: &out})
	log.Info("i", "error", quoted(errors.New("a\n\"b\"")))
	log.Close(closeTimeout)
	var v map[string]any
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if v["@message"] != "i" || v["error"] != "a\n\"b\"" {
		t.Errorf("object %v", v)
	}
}

func TestALineThatIsTooLongIsCut(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(LogConfig{Level: "info", Output: &out})
	log.Info(strings.Repeat("x", 2*maxLineLen))
	log.Close(closeTimeout)
	if out.Len() != maxLineLen+1 || !strings.HasSuffix(out.String(), "x\n") {
		t.Errorf("a line of %d bytes, want %d", out.Len(), maxLineLen+1)
	}
}

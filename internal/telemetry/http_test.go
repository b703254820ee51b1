// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

func healthy() Health {
	return Health{Ready: func() error { return nil }, Healthy: func(context.Context) error { return nil }}
}

// get asks the handler for a path.
func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func scrape(t *testing.T, tel *Telemetry) string {
	t.Helper()
	code, body := get(t, tel.Handler(healthy()), "/metrics")
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, body)
	}
	return body
}

// everySeries lets every metric have a series.
func everySeries(t *testing.T) *Telemetry {
	t.Helper()
	tel, _ := newTelemetry(t, io.Discard)
	device, engine := everything()
	g := tel.AddGuest(GuestInfo{Name: "vm1", Engine: "soft", Doorbells: "poll", DeviceVersion: 20, RoCE: 2, Counters: func() pvrdma.Counters { return device }, Objects: func() pvrdma.Objects {
		return pvrdma.Objects{Contexts: 21, PDs: 22, MRs: 23, CQs: 24, QPs: 25, SRQs: 26}
	}})
	tel.AddGuest(GuestInfo{Name: "vm2", Counters: func() pvrdma.Counters { return device }})
	tel.AddEngine(func() soft.Counters { return engine })
	g.Observe(pvrdma.CommandDone{Cmd: abi.CmdCreateCQ})
	g.Observe(pvrdma.QPStateChanged{To: hostverbs.StateRTS})
	g.Observe(pvrdma.AsyncEventSent{Type: abi.EventCommEst})
	g.Door().Disconnected(vfiouser.Disconnect{})
	return tel
}

func TestAFullScrapeHasNoProblems(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrape(t, everySeries(t)))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestDataPathCountersAreReadWhenScraped(t *testing.T) {
	text := scrape(t, everySeries(t))
	for _, want := range []string{
		`pvrdma_work_requests_total{guest="vm1",queue="send"} 1`, `pvrdma_work_requests_total{guest="vm1",queue="recv"} 2`,
		`pvrdma_completions_total{guest="vm1",status="success"} 7`, `pvrdma_completions_total{guest="vm1",status="error"} 3`,
		`pvrdma_doorbells_total{guest="vm2"} 5`, `pvrdma_cq_notifications_total{guest="vm2"} 6`,
		`pvrdma_memory_windows_denied_total{guest="vm1"} 11`,
		`pvrdma_objects{guest="vm1",type="user_context"} 21`, `pvrdma_objects{guest="vm1",type="pd"} 22`,
		`pvrdma_objects{guest="vm1",type="mr"} 23`, `pvrdma_objects{guest="vm1",type="cq"} 24`,
		`pvrdma_objects{guest="vm1",type="qp"} 25`, `pvrdma_objects{guest="vm1",type="srq"} 26`,
		`pvrdma_engine_messages_total{operation="read"} 3`, `pvrdma_engine_message_bytes_total{operation="write"} 5`,
		`pvrdma_engine_messages_total{operation="atomic"} 12`, `pvrdma_engine_message_bytes_total{operation="atomic"} 13`,
		`pvrdma_engine_registrations_total 14`, `pvrdma_engine_invalidations_total 15`,
		`pvrdma_engine_rnr_naks_total 7`, `pvrdma_engine_retries_total 8`, `pvrdma_engine_drops_total{reason="no_address"} 9`,
		`pvrdma_engine_drops_total{reason="not_a_mad"} 3`, `pvrdma_engine_drops_total{reason="port_down"} 2`,
		`pvrdma_engine_memory_faults_total 10`, `pvrdma_engine_completions_total{status="RETRY_EXC_ERR"} 0`,
		`pvrdma_guest_info{device_version="20",doorbells="poll",engine="soft",guest="vm1",roce="2"} 1`,
		`pvrdma_build_info{goversion="go1",revision="abc",version="v1"} 1`, `pvrdma_log_lines_dropped_total 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no series %s", want)
		}
	}
}

// TestAGuestHasABoundedNumberOfSeries lets a guest cause everything that it can.
func TestAGuestHasABoundedNumberOfSeries(t *testing.T) {
	tel, _ := newTelemetry(t, io.Discard)
	counters, _ := everything()
	g := tel.AddGuest(GuestInfo{Name: "vm1", Counters: func() pvrdma.Counters { return counters }})
	count := func() int { return strings.Count(scrape(t, tel), `guest="vm1"`) }
	if n := count(); n > 80 {
		t.Errorf("%d series of a guest that did nothing", n)
	}
	for i := range 1000 {
		g.Observe(pvrdma.CommandDone{Cmd: abi.Cmd(i)})
		g.Observe(pvrdma.CommandDone{Cmd: abi.CmdModifyQP, Err: unix.Errno(i)})
		g.Observe(pvrdma.AsyncEventSent{Type: abi.EventType(i), Lost: i%2 == 0})
		g.Observe(pvrdma.QPStateChanged{To: hostverbs.QPState(i)})
		g.Observe(pvrdma.GuestError{Reason: pvrdma.GuestErrorReason(i)})
		g.Observe(pvrdma.WasReset{Cause: pvrdma.ResetCause(i % int(numResetCauses))})
		g.Observe(pvrdma.ErrorStateChanged{State: pvrdma.ErrorState(i % int(numErrorStates))})
		g.Observe(pvrdma.CommandDone{Cmd: abi.CmdCreateBind, Err: unix.Errno(i)})
		g.Door().Refused(vfiouser.Refusal{Command: vfiouser.Command(i), Fault: vfiouser.Fault(i % 17)})
		g.Door().Disconnected(vfiouser.Disconnect{Reason: vfiouser.Reason(i % 9)})
	}
	if n := count(); n > 200 {
		t.Errorf("%d series of a guest that tries everything", n)
	}
}

func TestHealthAndReadinessSayWhatIsMissing(t *testing.T) {
	tel, _ := newTelemetry(t, io.Discard)
	h := tel.Handler(Health{
		Ready:   func() error { return errors.New("not listening yet") },
		Healthy: func(ctx context.Context) error { <-ctx.Done(); return errors.New("worker is stuck") },
	})
	start := time.Now()
	for path, want := range map[string]string{"/readyz": "not listening yet\n", "/healthz": "worker is stuck\n"} {
		if code, body := get(t, h, path); code != http.StatusServiceUnavailable || body != want {
			t.Errorf("%s: %d %q, want 503 %q", path, code, body, want)
		}
	}
	if d := time.Since(start); d > 10*healthTimeout {
		t.Errorf("a daemon that is stuck answered after %v", d)
	}
	h = tel.Handler(healthy())
	for path, want := range map[string]int{"/readyz": 200, "/healthz": 200, "/": 200, "/debug/pprof/": 404} {
		if code, _ := get(t, h, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /metrics: %d, want 405", w.Code)
	}
}

func TestMetricsAreServedUntilTheContextEnds(t *testing.T) {
	tel, _ := newTelemetry(t, io.Discard)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tel.Serve(ctx, l, healthy()) }()

	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Fatalf("answer %q, %v", line, err)
	}
	cancel() // with a client attached
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the server does not end while a client is attached")
	}
	if err := tel.Serve(context.Background(), l, healthy()); err == nil {
		t.Error("serving on a closed listener is no error")
	}
}

// TestTheMetricsInTheManualAreThoseThatThereAre keeps the table of docs/operations.md whole.
func TestTheMetricsInTheManualAreThoseThatThereAre(t *testing.T) {
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(pvrdma_[a-z_]+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(manual), -1) {
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == '`' || r == ' ' || r == ',' })
		sort.Strings(labels)
		documented = append(documented, fmt.Sprintf("%s %s %v", m[1], m[2], labels))
	}
	families, err := everySeries(t).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), namespace+"_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		sort.Strings(labels)
		there = append(there, fmt.Sprintf("%s %s %v", f.GetName(), strings.ToLower(f.GetType().String()), labels))
	}
	slices.Sort(documented)
	slices.Sort(there)
	if diff := cmp.Diff(there, documented); diff != "" {
		t.Errorf("the table differs from the registry (-registry +manual):\n%s", diff)
	}
}

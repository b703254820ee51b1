// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is a service manager's notification socket.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t: t, conn: conn}
}

// next returns the next notification, or "" if none comes for d.
func (m *manager) next(d time.Duration) string {
	m.t.Helper()
	b := make([]byte, 4096)
	if err := m.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		m.t.Fatal(err)
	}
	n, err := m.conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		m.t.Fatal(err)
	}
	return string(b[:n])
}

func TestTheServiceManagerHearsWhatItIsTold(t *testing.T) {
	m := newManager(t)
	for _, tt := range []struct {
		tell func() error
		want string
	}{
		{func() error { return Ready("2 guests") }, "READY=1\nSTATUS=2 guests"},
		{func() error { return Status("a\nREADY=1") }, "STATUS=a READY=1"},
		{func() error { return Stopping("bye") }, "STOPPING=1\nSTATUS=bye"},
	} {
		if err := tt.tell(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, m.next(time.Second)); diff != "" {
			t.Errorf("notification differs (-want +got):\n%s", diff)
		}
	}
}

func TestWithoutAServiceManagerNothingIsSaidAndNothingFails(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Ready("x"); err != nil {
		t.Error(err)
	}
}

func TestAServiceManagerThatIsGoneIsAnError(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if err := Ready("x"); err == nil || !strings.Contains(err.Error(), "READY=1") {
		t.Errorf("error %v, want one that names READY=1", err)
	}
}

func watch(t *testing.T, interval string) {
	t.Helper()
	t.Setenv("WATCHDOG_USEC", interval)
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
}

func TestTheWatchdogIsFedOnlyWhileTheCheckPasses(t *testing.T) {
	m := newManager(t)
	watch(t, "100000")
	ctx, cancel := context.WithCancel(context.Background())
	results := make(chan error, 8)
	results <- nil
	results <- errors.New("worker is stuck")
	results <- nil
	failures := make(chan error, 8)
	ended := make(chan error, 1)
	go func() {
		ended <- Watchdog(ctx, func(ctx context.Context) error {
			select {
			case err := <-results:
				return err
			case <-ctx.Done(): // the check that never returns by itself
				return ctx.Err()
			}
		}, func(err error) { failures <- err })
	}()
	for range 2 {
		if got := m.next(5 * time.Second); got != "WATCHDOG=1" {
			t.Fatalf("notification %q, want WATCHDOG=1", got)
		}
	}
	if err := <-failures; !strings.Contains(err.Error(), "worker is stuck") {
		t.Errorf("failure %v, want that of the check", err)
	}
	if err := <-failures; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("failure %v, want a deadline", err)
	}
	if got := m.next(200 * time.Millisecond); got != "" {
		t.Errorf("notification %q while the check does not return", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWithoutAnIntervalTheWatchdogEndsAtOnce(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	if err := Watchdog(context.Background(), nil, nil); err != nil {
		t.Error(err)
	}
	watch(t, "soon")
	if err := Watchdog(context.Background(), nil, nil); err == nil {
		t.Error("an interval that is no number is taken")
	}
}

func TestTheJournalIsRecognisedByItsStream(t *testing.T) {
	var st syscall.Stat_t
	if err := syscall.Fstat(2, &st); err != nil {
		t.Fatal(err)
	}
	stream := strconv.FormatUint(st.Dev, 10) + ":" + strconv.FormatUint(st.Ino, 10)
	for value, want := range map[string]bool{stream: true, "1:1": false, "": false, "nonsense": false} {
		t.Setenv("JOURNAL_STREAM", value)
		if got := JournalReadsStderr(); got != want {
			t.Errorf("JOURNAL_STREAM=%q: %v, want %v", value, got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build vm

package field

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// limitsPage is what application authors are told.
const limitsPage = "../../../docs/limits.md"

// TestWhatThePageSaysOfLimitsIsWhatAProgramFinds asks all questions of the page in an older and in a newer guest.
func TestWhatThePageSaysOfLimitsIsWhatAProgramFinds(t *testing.T) {
	want := limitsOf(t)
	var log daemonLog
	s := stage.New(t, bed.Options{Rows: []string{older}, OnLog: log.hear})
	s.LoadDrivers(t)
	for i := range s.Guests {
		t.Run(s.Row(i), func(t *testing.T) {
			out := s.Output(t, i, time.Minute, "chmod 666 /dev/infiniband/uverbs0 && limits")
			got := map[string]string{}
			for line := range strings.Lines(out) {
				name, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
				got[name] = answer
			}
			for name, answer := range want {
				if !slices.Contains(strings.Split(answer, " or "), got[name]) {
					t.Errorf("%s: the page says %q, the program %q", name, answer, got[name])
				}
			}
			for name := range got {
				if _, ok := want[name]; !ok {
					t.Errorf("%s: the page says nothing of it", name)
				}
			}
			tellsTheTrueErrno(t, s, &log, i)
			for _, command := range guestCommands(t) {
				s.Output(t, i, 10*time.Second, command)
			}
		})
	}
	s.CheckDaemon(t)
}

// daemonLog is what the daemon has logged so far.
type daemonLog struct {
	mu    sync.Mutex
	lines []bed.LogLine
}

func (l *daemonLog) hear(line bed.LogLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// says reports whether there is a line of a guest with that message and that error.
func (l *daemonLog) says(message, guest, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line bed.LogLine) bool {
		return line.Message == message && line.Guest == guest && line.Values["error"] == text
	})
}

// limitsOf reads the page's table: names, and the answers to what they stand for.
func limitsOf(t *testing.T) map[string]string {
	t.Helper()
	limits := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w-]+)` \\| .* \\| (.+?) \\|$").FindAllStringSubmatch(page(t), -1) {
		limits[row[1]] = row[2]
	}
	if len(limits) < 20 {
		t.Fatalf("the page has %d limits: does this test still read them?", len(limits))
	}
	return limits
}

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(limitsPage)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// guestCommands are those that the page shows for a guest's shell.
func guestCommands(t *testing.T) (commands []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```guest\n(.+?)```").FindAllStringSubmatch(page(t), -1) {
		commands = append(commands, strings.TrimSpace(block[1]))
	}
	if len(commands) == 0 {
		t.Fatal("the page shows no commands: does this test still read them?")
	}
	return commands
}

// tellsTheTrueErrno compares what the page says of a command that the device refused with the daemon's log and metrics.
func tellsTheTrueErrno(t *testing.T, s *stage.Stage, log *daemonLog, guest int) {
	t.Helper()
	m := regexp.MustCompile(`error="(CREATE_QP: [^"]+)"`).FindStringSubmatch(page(t))
	if m == nil {
		t.Fatal("the page shows no line of the daemon's log: does this test still read it?")
	}
	name := string(rune('a' + guest))
	if !log.says("command failed", name, m[1]) {
		t.Errorf("guest %s: the daemon's log has no %q", name, m[1])
	}
	series := fmt.Sprintf(`pvrdma_commands_total{command="CREATE_QP",guest=%q,result="EINVAL"}`, name)
	if bed.Sum(s.Scrape(t), series) == 0 {
		t.Errorf("guest %s: no metric counts the command that failed", name)
	}
}

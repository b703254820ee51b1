// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The commands that are served, and what the others are answered: written down once more, so that a slip in the table
// is not its own proof.
var (
	servedCommands = []Command{1, 2, 3, 4, 5, 7, 8, 9, 10, 13, 15}
	otherCommands  = map[Command]unix.Errno{
		6: unix.EOPNOTSUPP, 11: unix.EINVAL, 12: unix.EINVAL, 14: unix.EOPNOTSUPP,
		16: unix.ENOTTY, 17: unix.EOPNOTSUPP, 18: unix.EOPNOTSUPP,
	}
)

func TestEveryCommandNumberIsServedOrAnsweredWithItsErrno(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	for number := range 1 << 16 {
		command := Command(number)
		want, known := otherCommands[command]
		switch {
		case slices.Contains(servedCommands, command):
			continue // has its cases
		case !known:
			want = unix.ENOSYS
		}

		got := c.call(frame{command: command, body: make([]byte, number%40)})

		if unix.Errno(got.errno) != want {
			t.Fatalf("command %d: got errno %v, want %v", number, unix.Errno(got.errno), want)
		}
	}
	c.alive()
	if n := len(r.refusals()); n != 1<<16-len(servedCommands) {
		t.Errorf("%d messages are counted", n)
	}
	if calls := r.device().methods(); len(calls) != 0 {
		t.Errorf("the device was called: %v", calls)
	}
}

func TestTheCommandsThatAreServedAreServed(t *testing.T) {
	for _, command := range servedCommands {
		if e, err := entryOf(command); err != nil || e.serve == nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// documentedErrno finds the errno of a line of the package documentation's table.
var documentedErrno = regexp.MustCompile(`\bE[A-Z]+\b`)

func TestThePackageDocumentationHasTheSameTableOfCommands(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(file.Doc.Text(), "# Commands\n")
	section, _, _ = strings.Cut(section, "\n# ")
	said := map[string]string{}
	for line := range strings.Lines(section) {
		names, answer, found := strings.Cut(strings.TrimSpace(line), "  ")
		if !found || !strings.HasPrefix(line, "\t") {
			continue
		}
		for name := range strings.SplitSeq(names, ", ") {
			said[name] = strings.TrimSpace(answer)
		}
	}

	for c := Command(1); c < numCommands; c++ {
		answer, e := said[c.String()], table[c]
		delete(said, c.String())
		if e.serve != nil {
			if !strings.HasPrefix(answer, "served") {
				t.Errorf("%s is served, documented is %q", c, answer)
			}
			continue
		}
		if !strings.HasPrefix(answer, "absent") || documentedErrno.FindString(answer) != answerWord(e.errno) {
			t.Errorf("%s is answered with %s, documented is %q", c, answerWord(e.errno), answer)
		}
	}
	if others := said["others"]; others != "ENOSYS" || len(said) != 1 {
		t.Errorf("documented beside the commands: %q", said)
	}
}

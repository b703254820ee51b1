// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Verdict is how bad a finding is.
type Verdict uint8

// Verdicts.
const (
	OK Verdict = iota
	// Warn: it could not be checked, or works but not well.
	Warn
	// Fail: the guest has no device, or one that does not work.
	Fail
)

// String returns the verdict as it is printed.
func (v Verdict) String() string { return [...]string{"ok", "warn", "FAIL"}[v] }

// Finding is what a check found.
type Finding struct {
	// Check is the check's name, Guest the guest's if it is about one.
	Check, Guest string
	Verdict      Verdict
	// Reason says what was seen, Next what to do about it; an OK needs no Next.
	Reason, Next string
}

// Failed reports whether a finding is Fail.
func Failed(fs []Finding) bool {
	for _, f := range fs {
		if f.Verdict == Fail {
			return true
		}
	}
	return false
}

// lineWidth is how wide the text is, in columns: a terminal's. What cannot be broken is longer.
const lineWidth = 80

// Print writes the findings for people.
func Print(w io.Writer, fs []Finding) error {
	var b strings.Builder
	for _, f := range fs {
		name := f.Check
		if f.Guest != "" {
			name += " (" + f.Guest + ")"
		}
		wrap(&b, fmt.Sprintf("%-5s %s: %s", f.Verdict, name, f.Reason))
		if f.Next != "" {
			wrap(&b, "      next: "+f.Next)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes text in lines of lineWidth, those after the first indented.
func wrap(b *strings.Builder, text string) {
	const indent = "      "
	for len(text) > lineWidth {
		i := strings.LastIndexByte(text[:lineWidth+1], ' ')
		if i <= len(indent) {
			if i = strings.IndexByte(text[lineWidth:], ' '); i < 0 {
				break
			}
			i += lineWidth
		}
		b.WriteString(text[:i])
		b.WriteByte('\n')
		text = indent + text[i+1:]
	}
	b.WriteString(text)
	b.WriteByte('\n')
}

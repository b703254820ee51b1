// SPDX-License-Identifier: Apache-2.0

// Package klog judges a guest's kernel log: nothing may go wrong in the kernel, and the RDMA modules may complain of
// nothing that they do not also complain of without our device. It only reads text.
package klog

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Line is one line of the kernel log.
type Line struct {
	Priority int // 0 emergency ... 3 error, 4 warning ... 7 debug
	Text     string
}

// Log is a kernel log in order.
type Log []Line

// priorityMask takes the facility off a syslog priority (RFC 5424, section 6.2.1).
const priorityMask = 7

var rawLine = regexp.MustCompile(`^<(\d+)>\[ *\d+\.\d+\] (.*)$`)

// Parse reads the output of `dmesg --raw`. A line without a head continues the one before it.
func Parse(raw string) Log {
	var log Log
	for line := range strings.Lines(raw) {
		line = strings.TrimRight(line, "\n")
		m := rawLine.FindStringSubmatch(line)
		if m == nil {
			last := Line{Priority: 6}
			if len(log) > 0 {
				last = log[len(log)-1]
			}
			log = append(log, Line{Priority: last.Priority, Text: line})
			continue
		}
		priority, _ := strconv.Atoi(m[1]) // only digits; a huge one gives MaxInt, which has a low part too
		log = append(log, Line{Priority: priority & priorityMask, Text: m[2]})
	}
	return log
}

// trouble is what a healthy kernel never says, whatever its priority.
var trouble = regexp.MustCompile(strings.Join([]string{
	`\bWARNING: `,
	`\bBUG: `,
	`\bOops\b`,
	`\bCall Trace:`,
	`blocked for more than \d+ seconds`,
	`Kernel panic`,
	`general protection fault`,
	`\b(KASAN|UBSAN|KCSAN): `,
	`refcount_t: `,
	`list_(add|del) corruption`,
	`rcu: INFO: .*stall`,
	`circular locking dependency`,
	`unregister_netdevice: waiting for`,
}, "|"))

// rdma names the modules whose complaints count.
var rdma = regexp.MustCompile(`\b(vmw_pvrdma|infiniband|ib_[a-z]+|rdma_[a-z]+|iw_[a-z]+|uverbs\w*|rpcrdma|nvmet?(_rdma)?)\b`)

const warning = 4

// complaints are the errors and warnings of the RDMA modules.
func (l Log) complaints() []string {
	var texts []string
	for _, line := range l {
		if line.Priority <= warning && rdma.MatchString(line.Text) {
			texts = append(texts, line.Text)
		}
	}
	return texts
}

// Baseline holds the complaints that are known without our device.
type Baseline map[string]bool

// NewBaseline takes the complaints of a log.
func NewBaseline(l Log) Baseline {
	b := Baseline{}
	for _, text := range l.complaints() {
		b[normal(text)] = true
	}
	return b
}

// ReadBaseline reads what Write wrote: a line each, comments begin with #.
func ReadBaseline(r io.Reader) (Baseline, error) {
	b := Baseline{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if text := lines.Text(); text != "" && !strings.HasPrefix(text, "#") {
			b[text] = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read kernel log baseline: %w", err)
	}
	return b, nil
}

// Check returns what is wrong with the log, line by line: trouble first of all, and complaints beyond the baseline.
func (l Log) Check(known Baseline) []string {
	var wrong []string
	for _, line := range l {
		switch {
		case trouble.MatchString(line.Text):
			wrong = append(wrong, line.Text)
		case line.Priority <= warning && rdma.MatchString(line.Text) && !known[normal(line.Text)]:
			wrong = append(wrong, line.Text)
		}
	}
	return wrong
}

var number = regexp.MustCompile(`0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+`)

// normal replaces what differs from boot to boot: numbers and addresses.
func normal(text string) string { return number.ReplaceAllString(text, "N") }

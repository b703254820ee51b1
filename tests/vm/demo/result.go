// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
)

// result is what the payload check says of itself.
type result struct {
	messages, bytes uint64
	p50             string // microseconds
}

// parseResult reads pvcheck's last line.
func parseResult(out string) (result, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	values, ok := strings.CutPrefix(last, "pvcheck: PASS ")
	if !ok {
		return result{}, fmt.Errorf("pvcheck ended with %q", last)
	}
	r := result{}
	for _, field := range strings.Fields(values) {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "messages":
			r.messages, _ = strconv.ParseUint(value, 10, 64)
		case "bytes_compared":
			r.bytes, _ = strconv.ParseUint(value, 10, 64)
		case "p50_us":
			r.p50 = value
		}
	}
	if r.messages == 0 || r.bytes == 0 || r.p50 == "" {
		return result{}, errors.New("pvcheck compared nothing: " + last)
	}
	return r, nil
}

// traffic is what the daemon has carried.
type traffic struct{ messages, bytes uint64 }

// traffic asks the daemon's metrics.
func (d *demo) traffic(ctx context.Context) (traffic, error) {
	text, err := d.bed.Daemon.Metrics(ctx)
	if err != nil {
		return traffic{}, err
	}
	return traffic{
		messages: bed.Sum(text, "pvrdma_engine_messages_total"), bytes: bed.Sum(text, "pvrdma_engine_message_bytes_total"),
	}, nil
}

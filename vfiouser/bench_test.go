// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"io"
	"testing"
)

// BenchmarkRegionWrite is a register write with its answer, to be compared with BenchmarkBareRoundTrip of the same
// run.
func BenchmarkRegionWrite(b *testing.B) {
	r := start(b, func(cfg *Config) {
		cfg.Observer = nil
		cfg.Open = func(*Session) (Device, error) { return silentDevice{newRecordingDevice(0)}, nil }
	}, nil)
	c := r.client()
	p := c.bytes(writeFrame(RegionBAR1, 0x1c, 1, 2, 3, 4))
	answer := make([]byte, headerSize+regionAccessSize)
	b.ReportAllocs()
	for b.Loop() {
		c.write(p)
		if _, err := io.ReadFull(c.conn, answer); err != nil {
			b.Fatal(err)
		}
	}
}

// silentDevice is a device that keeps no record.
type silentDevice struct{ *recordingDevice }

func (silentDevice) WriteRegion(RegionIndex, uint64, []byte) error { return nil }
func (silentDevice) Replied()                                      {}

// BenchmarkBareRoundTrip is what two goroutines need for the same bytes.
func BenchmarkBareRoundTrip(b *testing.B) {
	client, server := socketPair(b)
	defer client.Close()
	request, answer := make([]byte, 36), make([]byte, 32)
	go func() {
		defer server.Close()
		for p := make([]byte, len(request)); ; {
			if _, err := io.ReadFull(server, p); err != nil {
				return
			}
			if _, err := server.Write(p[:len(answer)]); err != nil {
				return
			}
		}
	}()
	for b.Loop() {
		if _, err := client.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, answer); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTrigger is an interrupt that is delivered.
func BenchmarkTrigger(b *testing.B) {
	r := start(b, nil, nil)
	c := r.client()
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(newEventFD(b)))
	s := r.session()
	b.ReportAllocs()
	for b.Loop() {
		s.Trigger(IRQMSIX, 0)
	}
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"testing"
	"time"
)

// Messages that wait in the socket when their sender dies are for nobody. What they ask for may take long, and the next
// client waits for its end.
func TestWhatAClientAskedForBeforeItWentAwayDoesNotKeepTheNextOneWaiting(t *testing.T) {
	const slow = 2 * time.Millisecond
	many := make([]access, MaxFrame/multiWriteSize-1)
	for i := range many {
		many[i] = access{0, RegionBAR0, 1}
	}
	for name, queue := range map[string]func(c *client) []byte{
		"posted writes": func(c *client) []byte {
			return bytes.Repeat(c.bytes(posted(writeFrame(RegionBAR0, 0, 1))), len(many))
		},
		"writes that want an answer": func(c *client) []byte {
			return bytes.Repeat(c.bytes(writeFrame(RegionBAR0, 0, 1)), len(many)/2)
		},
		"one message of many writes":        func(c *client) []byte { return c.bytes(multiFrame(many...)) },
		"one posted message of many writes": func(c *client) []byte { return c.bytes(posted(multiFrame(many...))) },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil, func(d *recordingDevice) {
				d.before = func(method string) error {
					if method == "WriteRegion" {
						time.Sleep(slow)
					}
					return nil
				}
			})
			c := r.client()
			c.write(queue(c))
			eventually(t, "the first message is served", func() bool { return len(r.device().methods()) > 0 })

			c.close()

			r.disconnect(1)
			if n := len(r.device().methods()); n > len(many)/8 {
				t.Errorf("%d of %d writes were served for a client that was gone", n, len(many))
			}
			r.client().alive()
		})
	}
}

// A client that has said all it wants to say may close its own direction and read the answers.
func TestAClientThatOnlyStopsSendingGetsAllItsAnswers(t *testing.T) {
	const n = 20
	r := start(t, nil, func(d *recordingDevice) {
		d.before = func(string) error {
			time.Sleep(watchEvery)
			return nil
		}
	})
	c := r.client()
	c.write(bytes.Repeat(c.bytes(writeFrame(RegionBAR0, 0, 1)), n))

	if err := c.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}

	for range n {
		c.answer(CommandRegionWrite)
	}
}

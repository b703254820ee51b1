// SPDX-License-Identifier: Apache-2.0

package agentproto

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFramesComeBackAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream bytes.Buffer
		want := rapid.SliceOfN(rapid.Custom(drawFrame), 1, 8).Draw(t, "frames")
		for _, f := range want {
			if err := Write(&stream, f); err != nil {
				t.Fatal(err)
			}
		}

		for _, f := range want {
			got, err := Read(&stream)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(f, got); diff != "" {
				t.Fatalf("frame changed on the way (-want +got):\n%s", diff)
			}
		}
		if _, err := Read(&stream); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last frame: %v, want EOF", err)
		}
	})
}

func drawFrame(t *rapid.T) Frame {
	return Frame{
		Session: rapid.Uint32().Draw(t, "session"),
		Stream:  rapid.Uint32().Draw(t, "stream"),
		Kind:    Kind(rapid.IntRange(int(KindRun), int(KindExit)).Draw(t, "kind")),
		Payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"),
	}
}

func TestBadStreamsAreRefused(t *testing.T) {
	var whole bytes.Buffer
	if err := Write(&whole, Frame{Kind: KindStdout, Payload: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	edit := func(at int, b byte) []byte {
		c := bytes.Clone(whole.Bytes())
		c[at] = b
		return c
	}
	for name, tc := range map[string]struct {
		in   []byte
		want error
	}{
		"foreign magic":   {edit(0, 'x'), ErrMagic},
		"huge length":     {edit(19, 0xff), ErrPayload},
		"cut header":      {whole.Bytes()[:7], io.ErrUnexpectedEOF},
		"cut in payload":  {whole.Bytes()[:headerSize+2], io.ErrUnexpectedEOF},
		"nothing at all":  {nil, io.EOF},
		"payload is gone": {whole.Bytes()[:headerSize], io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(bytes.NewReader(tc.in)); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestAPayloadOverTheLimitIsNotWritten(t *testing.T) {
	var stream bytes.Buffer

	err := Write(&stream, Frame{Kind: KindData, Payload: make([]byte, MaxPayload+1)})

	if !errors.Is(err, ErrPayload) || stream.Len() != 0 {
		t.Errorf("got %v and %d bytes, want ErrPayload and none", err, stream.Len())
	}
}

// SPDX-License-Identifier: Apache-2.0

package gsi

import (
	"encoding/binary"
	"testing"
)

// mad makes a management datagram.
func mad(class, method byte, attr uint16) []byte {
	b := make([]byte, MADBytes)
	b[0], b[1], b[2], b[3] = 1, class, 2, method
	binary.BigEndian.PutUint16(b[16:], attr)
	return b
}

func TestConnectionManagementPasses(t *testing.T) {
	for attr := uint16(0x10); attr <= 0x1a; attr++ { // REQ to APR
		if !Valid(mad(0x07, 0x03, attr)) {
			t.Errorf("attribute %#x does not pass", attr)
		}
	}
	for _, method := range []byte{0x01, 0x02, 0x81} {
		if !Valid(mad(0x07, method, 0x0001)) {
			t.Errorf("the class port info by method %#x does not pass", method)
		}
	}
}

func TestWhatAKernelWouldRefuseDoesNotPass(t *testing.T) {
	version := mad(0x07, 0x03, 0x10)
	version[0] = 2
	for name, b := range map[string][]byte{
		"nothing":                         nil,
		"one byte less":                   mad(0x07, 0x03, 0x10)[:MADBytes-1],
		"one byte more":                   append(mad(0x07, 0x03, 0x10), 0),
		"a header alone":                  mad(0x07, 0x03, 0x10)[:24],
		"another base version":            version,
		"all zero":                        make([]byte, MADBytes),
		"subnet management":               mad(0x01, 0x01, 0x15),
		"directed subnet management":      mad(0x81, 0x01, 0x15),
		"connection management that asks": mad(0x07, 0x01, 0x10),
	} {
		if Valid(b) {
			t.Errorf("%s passes", name)
		}
	}
}

func TestOtherClassesPass(t *testing.T) {
	for _, class := range []byte{0x03, 0x04, 0x06, 0x09, 0x32} {
		if !Valid(mad(class, 0x01, 0x12)) {
			t.Errorf("class %#x does not pass", class)
		}
	}
}

func FuzzAnyBytesAreJudgedAndLeftAsTheyAre(f *testing.F) {
	f.Add(mad(0x07, 0x03, 0x10))
	f.Add([]byte{1, 7})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := string(b)
		if Valid(b) && len(b) != MADBytes {
			t.Errorf("%d bytes pass", len(b))
		}
		if string(b) != before {
			t.Error("the bytes have changed")
		}
	})
}

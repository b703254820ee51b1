// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

func get16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }
func get32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func get64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

func getBE16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
func getBE32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

func putBE16(b []byte, v uint16) { binary.BigEndian.PutUint16(b, v) }
func putBE32(b []byte, v uint32) { binary.BigEndian.PutUint32(b, v) }

// shortError is kept out of line so that decoders of the hot path stay small.
//
//go:noinline
func shortError(what string, have, want int) error {
	return fmt.Errorf("decode %s from %d bytes of %d: %w", what, have, want, syscall.EINVAL)
}

// SPDX-License-Identifier: Apache-2.0

// Package guestmem is the only package that touches guest bytes.
package guestmem

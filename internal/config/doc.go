// SPDX-License-Identifier: Apache-2.0

// Package config reads, checks and prints the daemon's configuration: one strict TOML file, a directory of drop-ins
// with one guest each, and command-line flags for a single guest.
//
// It may not act on what it reads: it opens no socket, starts nothing, and knows no device. Every mistake is reported
// with its file and line (or its flag) and with what to write instead, all of them at once.
package config

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOnlyLinksFollowAConfigurationThatIsReadAgain also when the file cannot be read, or says more.
func TestOnlyLinksFollowAConfigurationThatIsReadAgain(t *testing.T) {
	file, dir := twoGuests(t)
	p := start(t, "serve", "--config", file)
	p.told("READY=1")
	dropIn := filepath.Join(dir, "guests.d/b.toml")
	before, err := os.ReadFile(dropIn)
	if err != nil {
		t.Fatal(err)
	}
	says := func(text, want string) {
		t.Helper()
		if err := os.WriteFile(dropIn, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		p.logged(want)
	}
	says(string(before)+"link = \"down\"\n", "link changed: guest=b link=down")
	p.logged("links_changed=1")
	says(string(before)+"link = \"sideways\"\n", "all stays as it is")
	p.logged("sideways")
	says(string(before), "link changed: guest=b link=up")
	says(string(before)+"max_qp = 17\n", "restart the daemon for the rest: guests=[\"b\"]")
	if strings.Contains(p.text(), "guest=a link=") {
		t.Error("the other guest's link has changed")
	}
	// What is for the whole daemon waits for a new start too, and the log says what.
	global, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append([]byte("workers = 2\n"), global...), 0o644); err != nil {
		t.Fatal(err)
	}
	says(string(before), "restart the daemon for the rest: keys=[\"workers\"]")
	p.end(syscall.SIGTERM)
}

// TestASingleGuestOfFlagsOutlivesAReload: there is nothing to read again.
func TestASingleGuestOfFlagsOutlivesAReload(t *testing.T) {
	p := start(t, "serve", "--socket-path", filepath.Join(socketDir(t), "x.sock"), "--name", "x")
	p.told("READY=1")
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.logged("links_changed=0")
	p.end(syscall.SIGTERM)
}

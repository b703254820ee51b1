// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// root is the repository.
const root = "../.."

// pages returns the documents whose commands and links this package checks: all of the repository.
func pages(t *testing.T) (all []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != ".":
			return fs.SkipDir
		case strings.HasSuffix(path, ".md"):
			all = append(all, path)
		}
		return nil
	})
	if err != nil || len(all) < 10 {
		t.Fatalf("found %d documents, %v", len(all), err)
	}
	return all
}

func TestEveryCommandOfTheDocumentsRuns(t *testing.T) {
	binary := build(t)
	targets := makeTargets(t)
	ran := 0
	for _, page := range pages(t) {
		for _, c := range commands(t, page) {
			ran++
			t.Run(page+": "+c, func(t *testing.T) {
				if target, ok := strings.CutPrefix(c, "make "); ok {
					if !targets[target] {
						t.Errorf("the Makefile has no target %q", target)
					}
					return // a lane runs it
				}
				run(t, binary, c)
			})
		}
	}
	if ran < 8 {
		t.Errorf("found %d commands in the documents: does this test still read them?", ran)
	}
}

func TestEveryLinkOfTheDocumentsLeadsSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
			}
		}
	}
}

func TestACommandThatDoesNotExistIsFound(t *testing.T) {
	binary := build(t)
	if _, err := execute(t, binary, "pvrdmad no-such-command"); err == nil {
		t.Error("a command that does not exist ran")
	}
}

func read(t *testing.T, page string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// commands returns the lines of a page's fenced blocks that are commands of ours, without their comments.
func commands(t *testing.T, page string) (found []string) {
	t.Helper()
	inside := false
	for line := range strings.Lines(read(t, page)) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
			continue
		}
		c, _, _ := strings.Cut(strings.TrimSpace(line), " #")
		c = strings.TrimSpace(c)
		if inside && (strings.HasPrefix(c, "make ") || strings.HasPrefix(strings.TrimPrefix(c, "bin/"), "pvrdmad ")) {
			found = append(found, c)
		}
	}
	return found
}

func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pvrdmad")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/pvrdmad")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	return targets
}

// run runs one command. doctor is allowed to find that something is missing here, as long as it says what to do next.
func run(t *testing.T, binary, command string) {
	t.Helper()
	out, err := execute(t, binary, command)
	if strings.Contains(command, " doctor") && strings.Contains(out, "next:") {
		return
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
}

// patience is how long a command may take, or a daemon until it is ready.
const patience = 2 * time.Minute

// execute runs a command with the daemon that was just built. One that ends in & must get ready and go on, and is then
// told to end.
func execute(t *testing.T, binary, command string) (string, error) {
	t.Helper()
	words := strings.Fields(strings.TrimPrefix(command, "bin/"))
	background := words[len(words)-1] == "&"
	if background {
		words = words[:len(words)-1]
	}
	for i, w := range words {
		words[i] = strings.Replace(w, "/tmp/", t.TempDir()+"/", 1)
	}
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, words[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if !background {
		err := cmd.Run()
		return out.String(), errors.Join(err, ctx.Err())
	}
	notified := notifySocket(t)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notified.LocalAddr().String())
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ready := awaitReady(notified)
	// A daemon that has ended by itself takes no signal any more.
	err := errors.Join(ready, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), ctx.Err())
	return out.String(), err
}

// notifySocket is where a daemon says that it is ready, as sd_notify(3) has it.
func notifySocket(t *testing.T) *net.UnixConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "docs") // a test's own folder has too long a name for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// awaitReady returns when the daemon has said READY=1.
func awaitReady(c *net.UnixConn) error {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	message := make([]byte, 4096)
	for {
		n, err := c.Read(message)
		if err != nil {
			return fmt.Errorf("wait until the daemon is ready: %w", err)
		}
		if slices.Contains(strings.Split(string(message[:n]), "\n"), "READY=1") {
			return nil
		}
	}
}

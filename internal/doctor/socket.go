// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pvrdmad/pvrdmad/internal/config"
)

// maxSockets bounds what is read of the kernel's list of Unix sockets, bytes: a line has 60 and a path.
const maxSockets = 32 << 20

// accepting is the flag of a socket that listens, in the kernel's list: __SO_ACCEPTCON of linux/net.h.
const accepting = 1 << 16

// boundAs is what a daemon's socket is called in the kernel's list: it got its name before it was put in its place.
const boundAs = ".new"

// checkSocket checks that a daemon listens where the guest's virtual machine connects. Nothing is connected, which could
// keep a virtual machine out.
func checkSocket(proc string, g *config.Guest, machines []process) Finding {
	f := Finding{
		Check: checkSocketName, Guest: string(g.Name), Verdict: Warn,
		Next: "start the daemon: pvrdmad serve, or systemctl start pvrdmad",
	}
	found, err := listens(proc, g.SocketPath)
	switch {
	case err != nil:
		f.Reason = fmt.Sprintf("not checked, sockets cannot be listed: %v", err)
		f.Next = "run pvrdmad doctor as a user who can read " + filepath.Join(proc, "net/unix")
		return f
	case found:
		f.Verdict, f.Next = OK, ""
		f.Reason = "a daemon listens at " + g.SocketPath
		return f
	}
	f.Reason = "no daemon listens at " + g.SocketPath
	if p, _, ok := machineOf(g, machines); ok {
		f.Verdict = Fail
		f.Reason += fmt.Sprintf(", so that the device of QEMU %d is dead", p.pid)
		f.Next += "; then start the virtual machine again"
	}
	return f
}

// listens reports whether somebody listens at path.
func listens(proc, path string) (bool, error) {
	file, err := os.Open(filepath.Join(proc, "net/unix"))
	if err != nil {
		return false, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxSockets))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(b)) {
		// Num RefCount Protocol Flags Type St Inode Path: the path is the rest, whatever is in it.
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasSuffix(line, " "+path) && !strings.HasSuffix(line, " "+path+boundAs) {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		if flags, err := strconv.ParseUint(fields[3], 16, 32); err == nil && flags&accepting != 0 {
			return true, nil
		}
	}
	return false, nil
}

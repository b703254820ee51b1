// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/klog"
)

// Facts are the versions that really ran, each taken from the program itself or from the booted guest.
type Facts struct {
	QEMU     string            // the first line of qemu --version
	Kernel   string            // uname -r
	Debian   string            // VERSION_ID of the guest's os-release
	Packages map[string]string // versions of the guest's packages that matter
}

// factPackages are the packages whose versions Facts tells.
var factPackages = []string{"rdma-core", "libibverbs1", "ibverbs-providers", "perftest", "qperf", "python3-pyverbs"}

// Facts asks QEMU and the guest what they are.
func (g *Guest) Facts(ctx context.Context) (Facts, error) {
	qemu, err := exec.CommandContext(ctx, g.config.Images.QEMU, "--version").Output()
	if err != nil {
		return Facts{}, fmt.Errorf("ask QEMU for its version: %w", err)
	}
	first, _, _ := strings.Cut(string(qemu), "\n")
	out, err := g.Output(ctx, `uname -r; . /etc/os-release; echo "$VERSION_ID"; dpkg-query -W `+strings.Join(factPackages, " "))
	if err != nil {
		return Facts{}, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2+len(factPackages) {
		return Facts{}, fmt.Errorf("guest %s: unexpected list of versions: %q", g.config.Name, out)
	}
	f := Facts{QEMU: first, Kernel: lines[0], Debian: lines[1], Packages: map[string]string{}}
	for _, line := range lines[2:] {
		name, version, _ := strings.Cut(line, "\t")
		f.Packages[strings.TrimSuffix(name, ":amd64")] = version
	}
	return f, nil
}

// String is one line for logs.
func (f Facts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; guest Debian %s, Linux %s", f.QEMU, f.Debian, f.Kernel)
	for _, name := range factPackages {
		fmt.Fprintf(&b, ", %s %s", name, f.Packages[name])
	}
	return b.String()
}

// KernelLog reads the guest's kernel log since boot, and leaves a copy in kernel.log beside the guest's other logs.
func (g *Guest) KernelLog(ctx context.Context) (klog.Log, error) {
	out, err := g.Output(ctx, "dmesg --raw")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(g.logs, kernelLog), []byte(out), 0o644); err != nil {
		return nil, fmt.Errorf("keep kernel log: %w", err)
	}
	return klog.Parse(out), nil
}

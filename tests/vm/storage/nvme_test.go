// SPDX-License-Identifier: Apache-2.0

//go:build vm

package storage

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// The guests: the target's kernel has the disk, the host's kernel uses it. In NVMe's words the host is who connects.
const (
	target = iota
	host
)

// diskMiB is the size of the disk, inCapsule how many bytes of it may travel with their commands at most, by SEND.
const (
	diskMiB   = 16
	inCapsule = 64 << 10
)

// targetUp exports a block device in memory under ADDR.
const targetUp = `
set -e
modprobe brd rd_nr=1 rd_size=%[2]d
modprobe nvmet-rdma
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/disk
echo 1 >subsystems/disk/attr_allow_any_host
mkdir subsystems/disk/namespaces/1
echo /dev/ram0 >subsystems/disk/namespaces/1/device_path
echo 1 >subsystems/disk/namespaces/1/enable
mkdir ports/1
echo rdma >ports/1/addr_trtype
echo ipv4 >ports/1/addr_adrfam
echo %[1]s >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/disk ports/1/subsystems/disk
`

// targetDown takes all of it away.
const targetDown = `
set -e
cd /sys/kernel/config/nvmet
rm ports/1/subsystems/disk
rmdir ports/1 subsystems/disk/namespaces/1 subsystems/disk
modprobe -r nvmet-rdma
`

// connect makes the target's disk the host's /dev/nvme0n1. A minute for keep-alive messages: the host's kernel complains
// of answers that take a quarter of it, and emulated guests have to wait for a processor.
const connect = `
modprobe nvme-rdma || exit 4
nvme connect -t rdma -a %s -s 4420 -n disk -k 60 || exit 5
for i in $(seq 100); do
	[ -b /dev/nvme0n1 ] && [ "$(blockdev --getsize64 /dev/nvme0n1)" = %d ] && exit 0
	sleep 0.1
done
echo "no disk after 10 s" >&2
exit 6
`

const disconnect = `
nvme disconnect -n disk && for i in $(seq 100); do [ -e /dev/nvme0 ] || exit 0; sleep 0.1; done
echo "the controller does not go away" >&2
exit 7
`

// fill writes random bytes to the whole disk, past the page cache and in pieces of many sizes, the largest of which the
// host's kernel has to divide. It prints their checksum.
const fill = `
set -e -o pipefail
head -c %[1]dM /dev/urandom >data
at=0
for pages in 1 3 16 127 128 129 1024; do
	dd if=data of=/dev/nvme0n1 bs=$((pages * 4))K count=1 skip=$((at * 4096)) seek=$((at * 4096)) conv=notrunc status=none \
		iflag=fullblock,skip_bytes oflag=direct,seek_bytes
	at=$((at + pages))
done
dd if=data of=/dev/nvme0n1 bs=1M skip=$((at * 4096)) seek=$((at * 4096)) conv=notrunc,fdatasync status=none \
	iflag=fullblock,skip_bytes oflag=direct,seek_bytes
sha256sum <data
`

// readBack prints the checksum of the whole disk, read past the page cache, after four readers at a time have compared
// it with what was written.
const readBack = `
set -e -o pipefail
pids=
for quarter in 0 1 2 3; do
	skip=$((quarter * %[1]d / 4))
	dd if=/dev/nvme0n1 bs=1M skip=$skip count=$((%[1]d / 4)) iflag=direct status=none |
		cmp --ignore-initial=$((skip << 20)):0 --bytes=$((%[1]d << 18)) data - &
	pids="$pids $!"
done
for p in $pids; do wait $p; done
dd if=/dev/nvme0n1 bs=60K iflag=direct status=none | sha256sum
`

// targetSum prints the checksum of the disk as the target's kernel has it.
const targetSum = `set -o pipefail; dd if=/dev/ram0 bs=1M iflag=direct status=none | sha256sum`

// spoil changes one block of the disk behind the host's back.
const spoil = `dd if=/dev/urandom of=/dev/ram0 bs=4K seek=3000 count=1 oflag=direct conv=notrunc status=none`

// disk is a stage whose first guest's kernel has a disk that the second's uses.
type disk struct{ *stage.Stage }

// TestAKernelUsesTheDiskOfAnothersOverNVMe connects, writes, reads back and disconnects, again and again.
func TestAKernelUsesTheDiskOfAnothersOverNVMe(t *testing.T) {
	d := disk{stage.New(t, bed.Options{})}
	d.LoadDrivers(t)
	objects := d.objects(t)
	d.Output(t, target, time.Minute, fmt.Sprintf(targetUp, harness.Address(target+1), diskMiB<<10))

	for round := range stage.Count(2, 20) {
		d.Output(t, host, 2*time.Minute, fmt.Sprintf(connect, harness.Address(target+1), diskMiB<<20))
		if round > 0 {
			d.stillHas(t)
		}
		d.keepsWhatIsWritten(t)
		d.Output(t, host, time.Minute, disconnect)
	}
	d.noticesAnotherBlock(t)

	d.Output(t, target, time.Minute, targetDown)
	if now := d.objects(t); !maps.Equal(now, objects) {
		t.Errorf("objects before %v, after %v", objects, now)
	}
	d.CheckKernelLogs(t)
	d.CheckDaemon(t)
}

// objects are those of the guests' devices, without completion queues: the kernel keeps those of its own users in a pool
// for as long as there is a device.
func (d disk) objects(t *testing.T) map[string]uint64 {
	t.Helper()
	all := d.Objects(t)
	maps.DeleteFunc(all, func(series string, _ uint64) bool { return strings.Contains(series, `type="cq"`) })
	return all
}

// keepsWhatIsWritten writes the whole disk and compares what host and target read. The target's device gets what is
// written by READs and sends what is read by WRITEs.
func (d disk) keepsWhatIsWritten(t *testing.T) {
	t.Helper()
	const moved = `pvrdma_engine_message_bytes_total{operation=%q}`
	before := d.Scrape(t)
	want := d.Output(t, host, 3*time.Minute, fmt.Sprintf(fill, diskMiB))
	for who, got := range map[string]string{
		"host":   d.Output(t, host, 3*time.Minute, fmt.Sprintf(readBack, diskMiB)),
		"target": d.Output(t, target, 3*time.Minute, targetSum),
	} {
		if got != want {
			t.Errorf("the %s reads %q, written was %q", who, got, want)
		}
	}
	after := d.Scrape(t)
	for operation, times := range map[string]uint64{"read": 1, "write": 2} {
		name := fmt.Sprintf(moved, operation)
		if n := bed.Sum(after, name) - bed.Sum(before, name); n < times*diskMiB<<20-inCapsule {
			t.Errorf("%s grew by %d, want nearly %d MiB at least", name, n, times*diskMiB)
		}
	}
}

// stillHas compares what is on the disk with what was written to it before the last disconnect.
func (d disk) stillHas(t *testing.T) {
	t.Helper()
	got := d.Output(t, host, 3*time.Minute, fmt.Sprintf(readBack, diskMiB))
	if want := d.Output(t, host, time.Minute, "sha256sum <data"); got != want {
		t.Errorf("after a reconnect the host reads %q, written was %q", got, want)
	}
}

// noticesAnotherBlock is the check of the checks.
func (d disk) noticesAnotherBlock(t *testing.T) {
	t.Helper()
	d.Output(t, target, time.Minute, spoil)
	d.Output(t, host, 2*time.Minute, fmt.Sprintf(connect, harness.Address(target+1), diskMiB<<20))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r, err := d.Guests[host].Run(ctx, fmt.Sprintf(readBack, diskMiB))
	if err != nil || r.Status == 0 || !strings.Contains(r.Stdout, "differ: byte ") {
		t.Errorf("a changed block is not noticed: status %d, %v\n%s%s", r.Status, err, r.Stdout, r.Stderr)
	}
	d.Output(t, host, time.Minute, disconnect)
}

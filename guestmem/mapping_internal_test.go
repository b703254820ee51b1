// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyLocalFileSystemsMayHoldGuestMemory(t *testing.T) {
	for kind, local := range map[int64]bool{
		unix.TMPFS_MAGIC: true, unix.HUGETLBFS_MAGIC: true, unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true,
		unix.NFS_SUPER_MAGIC: false, unix.V9FS_MAGIC: false, unix.CIFS_SUPER_MAGIC: false, unix.SMB2_SUPER_MAGIC: false,
		unix.SMB_SUPER_MAGIC: false, unix.CEPH_SUPER_MAGIC: false, unix.AFS_SUPER_MAGIC: false, unix.FUSE_SUPER_MAGIC: false,
		// Whoever may make a user namespace can stack one on FUSE.
		unix.OVERLAYFS_SUPER_MAGIC: false, unix.ECRYPTFS_SUPER_MAGIC: false,
		// These hold registers, kernel memory, or nobody knows what.
		unix.SYSFS_MAGIC: false, unix.PROC_SUPER_MAGIC: false, unix.SECRETMEM_MAGIC: false, 0x0BD00BD0: false,
	} {
		if got := localFileSystem(kind); got != local {
			t.Errorf("file system %#x: %v", kind, got)
		}
	}
}

// Files of sysfs are regular and have a size; those of a PCI device's BARs can even be mapped.
func TestAFileOfSysfsIsNoGuestMemory(t *testing.T) {
	fd, err := unix.Open("/sys/kernel/mm/transparent_hugepage/enabled", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd, err = unix.Open("/sys/kernel/uevent_seqnum", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)

	_, err = inspect(fd)

	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "use memfd") {
		t.Errorf("%v, want EINVAL and what to use instead", err)
	}
}

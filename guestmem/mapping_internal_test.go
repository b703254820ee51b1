// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyLocalFileSystemsMayHoldGuestMemory(t *testing.T) {
	for kind, remote := range map[int64]bool{
		unix.TMPFS_MAGIC: false, unix.HUGETLBFS_MAGIC: false, unix.EXT4_SUPER_MAGIC: false, unix.XFS_SUPER_MAGIC: false,
		unix.NFS_SUPER_MAGIC: true, unix.V9FS_MAGIC: true, unix.CIFS_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true,
		unix.SMB_SUPER_MAGIC: true, unix.CEPH_SUPER_MAGIC: true, unix.AFS_SUPER_MAGIC: true, unix.FUSE_SUPER_MAGIC: true,
	} {
		if name, got := remoteFileSystem(kind); got != remote || (name != "") != remote {
			t.Errorf("file system %#x: %q, %v", kind, name, got)
		}
	}
}

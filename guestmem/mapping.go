// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// idleKeep is how long a file stays mapped after its last use. QEMU's firmware phase unmaps and maps the same file
// dozens of times within milliseconds, and mapping it anew would cost all its page table entries each time.
const idleKeep = 2 * time.Second

// fileKey names a file: device and inode, and whether the descriptor allows writing. While a mapping exists the
// kernel does not reuse the inode number.
type fileKey struct {
	dev, ino uint64
	writable bool
}

// mapping is one file mapped from its start to its end, or a heap slice.
type mapping struct {
	space *Space
	b     []byte
	base  hostPtr
	span  uint64 // len(b)
	key   fileKey
	heap  bool
	huge  bool // the file's pages are larger than PageSize
	// canWrite: the host mapping is writable.
	canWrite bool

	// Guarded by Space.mu.
	refs      int // regions and page lists that use it
	idleSince time.Time
	replaced  bool // the file has grown and was mapped again
}

// localFileSystem says whether the pages of a file system come from this host's memory and disks, and from nobody else:
// one that asks a process or another host may block a page fault for as long as that likes, which would stop every guest
// of the thread. What is not known is refused: a stack of file systems (overlayfs) does not say what lies at its bottom,
// and files of sysfs can be registers of hardware. The numbers are those of statfs(2).
func localFileSystem(kind int64) bool {
	switch kind {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC, // memfd_create(2) is one of them
		unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	}
	return false
}

// fileInfo is what a descriptor says about its file.
type fileInfo struct {
	key  fileKey
	size uint64
	huge bool
}

// inspect asks the kernel about fd and refuses what cannot be guest memory.
func inspect(fd int) (fileInfo, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fileInfo{}, fmt.Errorf("fstat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size <= 0 {
		return fileInfo{}, fmt.Errorf("descriptor is not a file with memory (mode %#o, size %d): %w", st.Mode, st.Size, unix.EINVAL)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fileInfo{}, fmt.Errorf("fstatfs: %w", err)
	}
	if !localFileSystem(int64(fs.Type)) {
		return fileInfo{}, fmt.Errorf("file lies on a file system of type %#x, whose pages may take forever; use memfd, tmpfs, "+
			"hugetlbfs, or ext4, xfs, btrfs or f2fs on a local disk: %w", uint64(fs.Type), unix.EINVAL)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return fileInfo{}, fmt.Errorf("fcntl: %w", err)
	}
	key := fileKey{dev: uint64(st.Dev), ino: st.Ino}
	switch flags & unix.O_ACCMODE {
	case unix.O_RDWR:
		key.writable = true
	case unix.O_WRONLY:
		return fileInfo{}, fmt.Errorf("descriptor cannot be read: %w", unix.EACCES)
	}
	return fileInfo{key: key, size: uint64(st.Size), huge: fs.Type == unix.HUGETLBFS_MAGIC}, nil
}

// mapFile returns the mapping of the file behind fd, holding a reference for the caller. The range must lie in the
// file. Called with s.ctl held.
func (s *Space) mapFile(fd int, offset, size uint64, prot Prot) (*mapping, error) {
	info, err := inspect(fd)
	if err != nil {
		return nil, err
	}
	if offset > info.size || size > info.size-offset {
		return nil, fmt.Errorf("file holds %#x bytes, offset %#x + size %#x is beyond: %w", info.size, offset, size, unix.EINVAL)
	}
	m := s.reuse(info.key, offset+size)
	if m == nil {
		if m, err = s.mapWhole(fd, info); err != nil {
			return nil, err
		}
	}
	if prot&ProtWrite != 0 && !m.canWrite {
		s.mu.Lock()
		s.unref(m)
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", errCannotWrite, unix.EACCES)
	}
	return m, nil
}

// reuse takes a reference on the mapping of a file that is mapped already and reaches up to end.
func (s *Space) reuse(key fileKey, end uint64) *mapping {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.files[key]
	if m == nil || m.span < end {
		return nil
	}
	m.refs++
	return m
}

// mapWhole maps a file and publishes the mapping with one reference. Called with s.ctl held.
func (s *Space) mapWhole(fd int, info fileInfo) (*mapping, error) {
	if err := s.room(info.size); err != nil {
		return nil, err
	}
	if err := s.dom.reserve(info.size); err != nil {
		return nil, err
	}
	m := &mapping{space: s, key: info.key, span: info.size, huge: info.huge, canWrite: info.key.writable, refs: 1}
	var err error
	if m.canWrite {
		m.b, err = mmap(fd, info.size, unix.PROT_READ|unix.PROT_WRITE)
	}
	if !m.canWrite || err == unix.EPERM || err == unix.EACCES { // sealed against writing
		m.canWrite = false
		m.b, err = mmap(fd, info.size, unix.PROT_READ)
	}
	if err != nil {
		s.dom.unreserve(info.size)
		return nil, fmt.Errorf("mmap %#x bytes: %w", info.size, err)
	}
	// Guest memory has no place in this process's core dumps. An old kernel that refuses is no reason to fail.
	_ = unix.Madvise(m.b, unix.MADV_DONTDUMP)
	m.base = ptrTo(m.b)
	s.dom.add(extent{base: m.base.addr(), size: m.span, m: m})

	s.mu.Lock()
	if old := s.files[m.key]; old != nil {
		old.replaced = true
		if old.refs == 0 {
			s.reapIn(0)
		}
	}
	s.files[m.key] = m
	s.maps[m] = struct{}{}
	s.mappedBytes += m.span
	s.mu.Unlock()
	return m, nil
}

func mmap(fd int, size uint64, prot int) ([]byte, error) {
	return unix.Mmap(fd, 0, int(size), prot, unix.MAP_SHARED|unix.MAP_NORESERVE)
}

// room checks the limits of the Space for one more mapping; idle ones give way.
func (s *Space) room(size uint64) error {
	for pass := range 2 {
		s.mu.Lock()
		files, bytes := len(s.maps), s.mappedBytes
		s.mu.Unlock()
		switch {
		case files < maxFiles && size <= maxSpaceBytes && bytes <= maxSpaceBytes-size:
			return nil
		case pass == 0:
			s.reap(0)
		case files >= maxFiles:
			return fmt.Errorf("guest has %d files mapped, limit %d: %w", files, maxFiles, ErrMapCount)
		}
	}
	return fmt.Errorf("file of %#x bytes is beyond the limit of %#x bytes of a guest: %w", size, uint64(maxSpaceBytes), unix.ENOMEM)
}

// unref drops a reference. Called with s.mu held, also by owner threads: so it makes no system call, and a mapping
// that becomes idle is left to the reaper.
func (s *Space) unref(m *mapping) {
	m.refs--
	if m.refs > 0 {
		return
	}
	if m.heap {
		delete(s.maps, m)
		return
	}
	m.idleSince = time.Now()
	s.reapIn(s.keepFor(m))
}

// keepFor is how long an idle mapping stays from now on. Called with s.mu held.
func (s *Space) keepFor(m *mapping) time.Duration {
	if s.closed || m.replaced {
		return 0
	}
	return idleKeep - time.Since(m.idleSince)
}

// reapIn makes sure that the reaper runs not later than after wait. Called with s.mu held.
func (s *Space) reapIn(wait time.Duration) {
	at := time.Now().Add(max(wait, 0))
	switch {
	case s.reaper == nil:
		s.reaper = time.AfterFunc(wait, func() { s.reap(idleKeep) })
	case s.reapAt.IsZero() || at.Before(s.reapAt):
		s.reaper.Reset(wait)
	default:
		return
	}
	s.reapAt = at
}

// reap unmaps windows that were given back, and files that have been idle for keep or longer, or whose mapping was
// replaced. No access can be under way in them: their regions were unmapped behind the barrier and their page lists
// released. When it returns, what another call of it has begun is done too.
func (s *Space) reap(keep time.Duration) {
	s.reaping.Lock()
	defer s.reaping.Unlock()
	s.mu.Lock()
	windows := s.retired
	s.retired = nil
	s.windows -= len(windows)
	victims := s.idle(keep)
	s.mu.Unlock()
	s.forget(windows, victims)
	for _, w := range windows {
		w.unmap()
		s.dom.unreserveWindow(w)
	}
	for _, m := range victims {
		if err := unix.Munmap(m.b); err != nil {
			// The kernel refuses only ranges that are not ours: going on would corrupt other guests.
			panic(fmt.Sprintf("guestmem: munmap %#x bytes of guest %q: %v", m.span, s.owner, err))
		}
		s.dom.unreserve(m.span)
	}
}

// forget takes what is to be unmapped out of the Domain's index, all at once: the index is copied for it.
func (s *Space) forget(windows []*window, files []*mapping) {
	if len(windows)+len(files) == 0 {
		return
	}
	gone := make(map[uintptr]struct{}, len(windows)+len(files))
	for _, w := range windows {
		gone[w.base.addr()] = struct{}{}
	}
	for _, m := range files {
		gone[m.base.addr()] = struct{}{}
	}
	s.dom.remove(gone)
}

// idle takes the mappings to be unmapped out of the Space, and sets the reaper for those that will be. Called with
// s.mu held.
func (s *Space) idle(keep time.Duration) []*mapping {
	var victims []*mapping
	s.reapAt = time.Time{}
	for m := range s.maps {
		if m.refs > 0 || m.heap {
			continue
		}
		if left := s.keepFor(m); left > idleKeep-keep {
			s.reapIn(left)
			continue
		}
		delete(s.maps, m)
		if s.files[m.key] == m {
			delete(s.files, m.key)
		}
		s.mappedBytes -= m.span
		victims = append(victims, m)
	}
	return victims
}

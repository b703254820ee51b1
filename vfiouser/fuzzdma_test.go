// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

// mappingModel is what testdata/cases.md says of memory, written down a second time: a list that is searched from its
// begin to its end.
type mappingModel struct{ all []mapping }

// mapRefusal returns the errno with which a DMA_MAP has to be refused, 0 if it must not be.
func (m *mappingModel) mapRefusal(p []byte, file bool) unix.Errno {
	if len(p) != 32 {
		return unix.EINVAL
	}
	argsz, flags := binary.NativeEndian.Uint32(p), binary.NativeEndian.Uint32(p[4:])
	offset, addr, size := binary.NativeEndian.Uint64(p[8:]), binary.NativeEndian.Uint64(p[16:]), binary.NativeEndian.Uint64(p[24:])
	switch {
	case argsz < 32, flags > 15, flags&3 == 0, flags&12 != 0 && !file:
		return unix.EINVAL
	case flags&12 == 8:
		return unix.EOPNOTSUPP
	case size == 0, size%4096 != 0, addr%4096 != 0, addr+size < addr: // the end must be a number
		return unix.EINVAL
	case file && (offset%4096 != 0 || size > math.MaxInt64 || offset > math.MaxInt64 || offset+size > math.MaxInt64):
		return unix.EINVAL
	}
	for _, other := range m.all {
		if addr < other.addr+other.size && other.addr < addr+size {
			return unix.EEXIST
		}
	}
	return 0
}

// unmapRefusal is the same of a DMA_UNMAP; it also returns the mappings that are left otherwise.
func (m *mappingModel) unmapRefusal(p []byte) (left []mapping, errno unix.Errno) {
	if len(p) != 24 {
		return nil, unix.EINVAL
	}
	argsz, flags := binary.NativeEndian.Uint32(p), binary.NativeEndian.Uint32(p[4:])
	addr, size := binary.NativeEndian.Uint64(p[8:]), binary.NativeEndian.Uint64(p[16:])
	switch {
	case argsz < 24, flags != 0 && flags != 2, flags == 2 && (addr != 0 || size != 0):
		return nil, unix.EINVAL
	case flags == 2:
		return nil, 0
	case size == 0, addr+size < addr:
		return nil, unix.EINVAL
	}
	found, behind := false, false
	for _, other := range m.all {
		switch {
		case other.addr >= addr+size || other.addr+other.size <= addr:
			left = append(left, other)
		case other.addr < addr:
			return nil, unix.ENOENT
		default:
			found, behind = true, behind || other.addr+other.size > addr+size
		}
	}
	switch {
	case !found:
		return nil, unix.ENOENT
	case behind:
		return nil, unix.EINVAL
	}
	return left, 0
}

// playMappings plays DMA_MAPs and DMA_UNMAPs with any payload, with and without files.
func playMappings(t testing.TB, data []byte) {
	before := takeCensus(t)
	s, seen := bareSession(t)
	model := &mappingModel{}
	for len(data) >= 2 {
		kind, size := data[0]%4, min(int(data[1]%40), len(data)-2)
		body := data[2:][:size]
		data = data[2+size:]
		var got, want unix.Errno
		if kind == 3 {
			left, errno := model.unmapRefusal(body)
			if got, want = s.take(CommandDMAUnmap, body), errno; want == 0 {
				model.all = left
			}
		} else {
			got, want = s.take(CommandDMAMap, body, memoryFiles(t, kind)...), model.mapRefusal(body, kind == 1)
			if kind == 2 {
				want = unix.EINVAL // two files
			}
			if want == 0 {
				model.all = append(model.all, mapping{binary.NativeEndian.Uint64(body[16:]), binary.NativeEndian.Uint64(body[24:])})
			}
		}
		if got != want {
			t.Fatalf("kind %d, % x over %x: got errno %v, want %v", kind, body, model.all, got, want)
		}
		if len(s.maps) != len(model.all) {
			t.Fatalf("%d mappings, want %d", len(s.maps), len(model.all))
		}
	}
	for i, open := range seen.device.mapped {
		if has := seen.device.calls[mapCall(seen.device, i)].DMA.FD >= 0; has != open {
			t.Errorf("mapping %d was made with a file: %v, which was open: %v", i, has, open)
		}
	}
	s.irqs.close()
	before.check(t)
}

// mapCall returns which call of a device was its MapDMA number n.
func mapCall(d *recordingDevice, n int) int {
	for i, c := range d.calls {
		if c.Method != "MapDMA" {
			continue
		}
		if n == 0 {
			return i
		}
		n--
	}
	return -1
}

// memoryFiles returns n files.
func memoryFiles(t testing.TB, n byte) (fds []int) {
	for range n {
		fd, err := unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

func FuzzMappings(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { playMappings(t, data) })
}

// mappingSeeds returns the inputs from which FuzzMappings starts.
func mappingSeeds() map[string][]byte {
	steps := func(frames ...frame) (all []byte) {
		for _, f := range frames {
			kind := byte(len(f.fds))
			if f.command == CommandDMAUnmap {
				kind = 3
			}
			all = append(append(all, kind, byte(len(f.body))), f.body...)
		}
		return all
	}
	a, b := mapFrame(3, 0, 0x4000, 0x2000), mapFrame(1, 0x2000, 0x8000, 0x2000).with(0)
	seeds := map[string][]byte{
		"beside":    steps(a, b, mapFrame(2, 0, 0x6000, 0x2000), unmapFrame(0, 0x4000, 0x6000), a),
		"over-same": steps(a, b, a), "over-around": steps(a, b, mapFrame(3, 0, 0x3000, 0x4000)),
		"over-begin": steps(a, b, mapFrame(3, 0, 0x3000, 0x2000)), "over-end": steps(a, b, mapFrame(3, 0, 0x5000, 0x2000)),
		"over-two":   steps(a, b, mapFrame(3, 0, 0x5000, 0x4000)),
		"cut":        steps(a, unmapFrame(0, 0x4000, 0x1000), unmapFrame(0, 0x5000, 0x1000), unmapFrame(0, 0x5000, 0x4000)),
		"twice":      steps(a, unmapFrame(0, 0x4000, 0x2000), unmapFrame(0, 0x4000, 0x2000)),
		"all":        steps(a, b, unmapFrame(dmaUnmapAll, 0, 0), unmapFrame(dmaUnmapAll, 0, 0), a),
		"empty":      steps(a, unmapFrame(0, 0x4000, 0), unmapFrame(0, 0x4000, math.MaxUint64)),
		"last-pages": steps(mapFrame(3, 0, math.MaxUint64-8191, 4096), unmapFrame(0, math.MaxUint64-8191, 4096)),
		"mmap":       steps(mapFrame(7, 0, 0, 4096).with(0), mapFrame(15, 0, 0x1000, 4096).with(0)),
	}
	for _, f := range dmaFaults() {
		seeds[f.id] = steps(a, f.frame.with(make([]int, f.files)...), b)
	}
	return seeds
}

// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// table is the matrix: every command by its structure's name without pvrdma_cmd_.
func table(t testing.TB) map[string]command {
	all := map[string]command{"modify_qp": modifyQP()}
	for _, some := range []map[string]command{objectCommands(), portCommands(), qpCommands(), srqCommands(), absentCommands(t)} {
		for name, c := range some {
			if _, twice := all[name]; twice {
				t.Fatalf("%s is in the table twice", name)
			}
			all[name] = c
		}
	}
	for _, c := range all {
		for path, cells := range headerFields() {
			if _, has := c.fields[path]; !has {
				c.fields[path] = cells
			}
		}
	}
	return all
}

// headerFields are the cells of every command's header. A request's code is what makes it another command; codes that are
// none have a test of their own.
func headerFields() map[string][]cell {
	return map[string][]cell{
		"hdr.response": nil, // echoed: every row carries a token and looks for it
		"hdr.cmd":      refused(unix.EOPNOTSUPP, 21, 0x80000000, max32),
		"hdr.reserved": reserved(4),
	}
}

// absent are the commands that this device does not serve: Linux never resizes a completion queue of pvrdma.
var absent = []string{"resize_cq"}

func absentCommands(t testing.TB) map[string]command {
	l, err := layout.Load()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]command{}
	for _, name := range absent {
		c := command{honest: func(b *board) layout.View { return b.Request(name) }, fields: map[string][]cell{}}
		for _, path := range l.Leaves("pvrdma_cmd_" + name) {
			n := l.Field("pvrdma_cmd_"+name, path).Size
			c.fields[path] = refused(unix.EOPNOTSUPP, make([]byte, n), append([]byte{1}, make([]byte, n-1)...), fill(n))
		}
		delete(c.fields, "hdr.cmd")
		delete(c.fields, "hdr.response")
		out[name] = c
	}
	return out
}

// requests are the structures of the headers that a command slot can hold.
func requests(l *layout.Layout) (names []string) {
	for _, s := range l.Structs("pvrdma_cmd_") {
		name := strings.TrimPrefix(s, "pvrdma_cmd_")
		if name != "req" && name != "resp" && name != "hdr" && !strings.HasSuffix(name, "_resp") &&
			!strings.HasSuffix(name, "_resp_v2") && name != "resp_hdr" {
			names = append(names, name)
		}
	}
	return names
}

// holes compares the table with the headers and returns what is missing from one of the two.
func holes(l *layout.Layout, all map[string]command) (out []string) {
	names := requests(l)
	for name := range all {
		if !slices.Contains(names, name) {
			out = append(out, name+" is no command of the headers")
		}
	}
	for _, name := range names {
		c, ok := all[name]
		if !ok {
			out = append(out, name+" has no rows")
			continue
		}
		leaves := l.Leaves("pvrdma_cmd_" + name)
		for path := range c.fields {
			if !slices.Contains(leaves, path) {
				out = append(out, name+" has no field "+path)
			}
		}
		for _, path := range leaves {
			if cells, ok := c.fields[path]; !ok || (len(cells) == 0 && path != "hdr.response") {
				out = append(out, name+"."+path+" has no row")
			}
		}
	}
	return out
}

func TestEveryFieldOfEveryCommandHasARow(t *testing.T) {
	l, err := layout.Load()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(requests(l)); n != int(l.Const("PVRDMA_CMD_MAX")) {
		t.Errorf("the headers have %d requests and %d codes", n, l.Const("PVRDMA_CMD_MAX"))
	}
	for _, hole := range holes(l, table(t)) {
		t.Error(hole)
	}
}

func TestAMissingRowAndARowTooManyAreFound(t *testing.T) {
	l, err := layout.Load()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		damage func(all map[string]command)
		want   string
	}{
		"a command": {func(all map[string]command) { delete(all, "create_uc") }, "create_uc has no rows"},
		"a field":   {func(all map[string]command) { delete(all["create_cq"].fields, "cqe") }, "create_cq.cqe has no row"},
		"no cells":  {func(all map[string]command) { all["create_cq"].fields["cqe"] = nil }, "create_cq.cqe has no row"},
		"a field that is not there": {
			func(all map[string]command) { all["create_cq"].fields["cqes"] = taken(1) }, "create_cq has no field cqes",
		},
		"a command that is not there": {func(all map[string]command) { all["create_ah"] = command{} }, "create_ah is no command"},
	} {
		all := table(t)
		c.damage(all)
		if got := strings.Join(holes(l, all), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

// TestEveryFieldOutOfItsRange runs the matrix: each cell is one command that is honest but for one field. A refusal must
// change nothing on a board that serves the next row too; after a success the board is a new one.
func TestEveryFieldOutOfItsRange(t *testing.T) {
	m := newRun(t)
	for _, name := range slices.Sorted(maps.Keys(m.table)) {
		c := m.table[name]
		for _, path := range slices.Sorted(maps.Keys(c.fields)) {
			for _, cell := range c.fields[path] {
				m.row(name, path, cell)
			}
			m.fields++
		}
	}
	m.summary()
}

// run is a passage through the matrix.
type run struct {
	t     *testing.T
	table map[string]command
	b     *board
	state *inproc.State // of b, if it is known
	// honest are the states after a command's honest request, from the same board.
	honest map[string]inproc.State

	fields, rows, taken, ignored int
	refusals                     map[unix.Errno]int
}

func newRun(t *testing.T) *run {
	r := &run{t: t, table: table(t), honest: map[string]inproc.State{}, refusals: map[unix.Errno]int{}}
	r.renew()
	t.Cleanup(func() { r.b.Close() })
	return r
}

func (r *run) renew() {
	if r.b != nil {
		r.b.Close()
	}
	r.b, r.state = newBoard(r.t), nil
}

// Close ends the board's host.
func (b *board) Close() { b.Host.Close() }

// row runs one row as a test of its own.
func (r *run) row(command, path string, c cell) {
	r.rows++
	r.t.Run(fmt.Sprintf("%s.%s %s", command, path, c.name), func(t *testing.T) {
		req := r.table[command].honest(r.b).Set("hdr.response", token)
		c.set(r.b, req, path)
		if c.want != 0 {
			r.refusals[c.want]++
			r.refuse(t, req, c.want)
		} else {
			r.accept(t, command, req, c)
		}
		if t.Failed() { // what one row breaks is not the next row's
			r.renew()
		}
	})
}

// refuse runs a command that fails.
func (r *run) refuse(t *testing.T, req layout.View, want unix.Errno) {
	b := r.b
	copy(b.Bytes(b.CmdSlot, b.L.Size("pvrdma_cmd_req")), fill(b.L.Size("pvrdma_cmd_req")))
	// Whatever the device writes behind its answer has to be seen, also if it writes the same each time.
	copy(b.Bytes(b.RespSlot, inproc.PageSize), fill(inproc.PageSize))
	before := b.look(r.state)
	a := b.PostRaw(req.Bytes())
	b.answered(t, req.Get32("hdr.cmd"), a, want)
	b.moved(t, inproc.CommandCounter(commandName(req.Get32("hdr.cmd"), b.L), want))
	copy(b.Bytes(b.CmdSlot, b.L.Size("pvrdma_cmd_req")), fill(b.L.Size("pvrdma_cmd_req")))
	b.same(t, before)
	r.state = &before.state
	b.sweep()
}

// accept runs a command that succeeds, and for a value that is ignored compares what became of it with what becomes of the
// honest one.
func (r *run) accept(t *testing.T, command string, req layout.View, c cell) {
	b := r.b
	a := b.Post(req.Bytes())
	code := req.Get32("hdr.cmd")
	if !a.OK() || a.Header.Get32("ack") != 1<<31|code || a.Header.Get("response") != token {
		t.Fatalf("ERR %d, err %d, ack %#x: %v", a.Reg, a.Header.Get("err"), a.Header.Get("ack"), b.Seen.Last())
	}
	defer r.renew()
	if c.ignored == "" {
		r.taken++
		return
	}
	r.ignored++
	if diff := r.honestState(t, command, c).Diff(b.State()); diff != "" {
		t.Errorf("ignored (%s), but the device differs from one that got the honest command:\n%s", c.ignored, diff)
	}
}

// honestState is the state of a board after a command's honest request, with the other fields as the cell has them.
func (r *run) honestState(t *testing.T, command string, c cell) inproc.State {
	key := command
	if c.before != nil {
		key = command + c.name
	}
	if s, ok := r.honest[key]; ok {
		return s
	}
	b := newBoard(t)
	defer b.Close()
	req := r.table[command].honest(b).Set("hdr.response", token)
	if c.before != nil {
		c.before(b, req)
	}
	if a := b.Post(req.Bytes()); !a.OK() {
		t.Fatalf("the honest command: ERR %d, %v", a.Reg, b.Seen.Last())
	}
	r.honest[key] = b.State()
	return r.honest[key]
}

func (r *run) summary() {
	errnos := slices.SortedFunc(maps.Keys(r.refusals), func(a, b unix.Errno) int { return r.refusals[b] - r.refusals[a] })
	var by []string
	for _, e := range errnos {
		by = append(by, fmt.Sprintf("%s %d", unix.ErrnoName(e), r.refusals[e]))
	}
	r.t.Logf("%d commands, %d fields, %d rows: %d refused (%s), %d in range, %d without effect; a state holds %d values",
		len(r.table), r.fields, r.rows, r.rows-r.taken-r.ignored, strings.Join(by, ", "), r.taken, r.ignored, r.b.State().Len())
}

// commandName is how a code is called in logs: the headers' name, or a hexadecimal number.
func commandName(code uint32, l *layout.Layout) string {
	for _, name := range requests(l) {
		if name = strings.ToUpper(name); l.Const("PVRDMA_CMD_"+name) == code {
			return name
		}
	}
	return fmt.Sprintf("%#x", code)
}

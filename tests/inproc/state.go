// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// State is everything that the program holds for a guest's function and whatever that leads to: each field of each
// object, one line each, by its path. What is zero is left out.
type State struct{ lines []string }

// passing are the fields that a State leaves out, each with the reason.
var passing = map[string]string{
	"pcifn.Config.Observer":     "the test's own",
	"pcifn.session.observer":    "the test's own",
	"pcifn.session.request":     "the copied slot: a command may leave itself behind",
	"pcifn.session.response":    "the answer, which is compared apart",
	"pcifn.session.state":       "a gauge: a first use of a device that is not ready names what it waits for",
	"pcifn.registers.err":       "the verdict, which is compared apart",
	"pcifn.registers.icr":       "interrupt causes, which are compared apart",
	"pvrdma.Device.observer":    "the test's own",
	"pvrdma.Device.live":        "counters, which are compared apart",
	"pvrdma.Device.share":       "renewed with each visit of the worker",
	"pvrdma.Device.looks":       "renewed with each visit of the worker",
	"pvrdma.Device.unit":        "renewed with each visit of the worker",
	"pvrdma.Device.overdrawn":   "renewed with each visit of the worker",
	"pvrdma.Device.pageAt":      "which doorbell page the worker looks at next",
	"pvrdma.Device.served":      "renewed with each visit of the worker",
	"pvrdma.Device.crowded":     "renewed with each visit of the worker",
	"pvrdma.Device.lively":      "how long ago there was something to do",
	"pvrdma.Device.inVain":      "how long ago there was something to do",
	"pvrdma.attention.*":        "which devices the worker looks at next",
	"pvrdma.Device.sends":       "scratch of the worker",
	"pvrdma.Device.wrong":       "scratch of the worker",
	"pvrdma.Device.wqe":         "scratch of the worker",
	"pvrdma.Device.pageTable":   "scratch of the worker",
	"pvrdma.Device.pageList":    "scratch of the worker",
	"pvrdma.trappedDoorbells.*": "a queue that is empty once the worker has made a pass; its two slices change places",
	"pvrdma.Worker.idle":        "how long the worker sleeps",
	"pvrdma.Worker.tasks":       "the look itself is a task",
	"pvrdma.Worker.pending":     "the look itself is a task",
	"timerwheel.Wheel.cur":      "a clock",
	"soft.poller.now":           "a clock",
	"soft.poller.packet":        "scratch of the worker",
	"soft.context.mads":         "a clock",
	"soft.counts.due":           "a clock",
	"soft.counts.dirty":         "whether there is something to publish",
	"soft.counts.shared":        "what was published of live, now and then",
	"pvrdma.Worker.tid":         "the thread's number",
	"guestmem.mapping.b":        "guest memory, which is compared apart",
	"guestmem.pinNode.prev":     "a list of all page lists in a region: each is found by its object, too",
	"guestmem.pinNode.next":     "as prev",
	"guestmem.Space.files":      "an index of maps by the kernel's numbers of files",
	"guestmem.Domain.index":     "mappings by host address, whose order is the kernel's choice: each is found by its region, too",
	"guestmem.fileKey.ino":      "the kernel's number of a file",
	"guestmem.SharedPages.fd":   "a descriptor's number",
	"guestmem.Space.reaper":     "a timer of the runtime",
	"guestmem.version.gate":     "readers under way",
}

// State returns the state of the function of a guest, of the worker and of the engine, hence of all other guests too, as
// it is between two passes of all workers.
func (g *Guest) State() State {
	g.Settle()
	w := walker{seen: map[uintptr]int{}}
	g.still(func() { w.walk(reflect.ValueOf(g.Device)) })
	return State{w.lines}
}

// Diff returns what is different in another state, at most a few lines.
func (s State) Diff(other State) string {
	if slices.Equal(s.lines, other.lines) {
		return ""
	}
	var out []string
	for _, d := range []struct {
		sign      string
		from, not []string
	}{{"-", s.lines, other.lines}, {"+", other.lines, s.lines}} {
		has := map[string]bool{}
		for _, l := range d.not {
			has[l] = true
		}
		for _, l := range d.from {
			if !has[l] {
				out = append(out, d.sign+" "+l[max(0, len(l)-maxLine):])
			}
		}
	}
	const most = 12 // lines
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return strings.Join(out, "\n")
}

// maxLine bounds what of a line is shown: lists of objects make long paths, of which the end says what it is.
const maxLine = 120

// Len is how many values the state holds.
func (s State) Len() int { return len(s.lines) }

// Find returns the first line of the state that has a text in its path or value, "" if none has.
func (s State) Find(text string) string {
	i := slices.IndexFunc(s.lines, func(l string) bool { return strings.Contains(l, text) })
	if i < 0 {
		return ""
	}
	return s.lines[i]
}

// Mentions reports whether a line of the state has a text in its path or value.
func (s State) Mentions(text string) bool { return s.Find(text) != "" }

// walker follows every pointer once.
type walker struct {
	path  []byte
	seen  map[uintptr]int
	lines []string
	// passed are the fields that were left out, if it is not nil.
	passed map[string]bool
}

func (w *walker) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		w.pointer(v)
	case reflect.Interface:
		if !v.IsNil() {
			w.walk(v.Elem())
		}
	case reflect.Struct:
		w.fields(v)
	case reflect.Slice, reflect.Array:
		w.elements(v)
	case reflect.Map:
		w.entries(v)
	default:
		w.scalar(v)
	}
}

// pointer numbers what it meets, so that two states agree if they have the same shape.
func (w *walker) pointer(v reflect.Value) {
	if v.IsNil() {
		return
	}
	if n, ok := w.seen[v.Pointer()]; ok {
		w.line("-> object " + strconv.Itoa(n))
		return
	}
	w.seen[v.Pointer()] = len(w.seen)
	w.walk(v.Elem())
}

func (w *walker) fields(v reflect.Value) {
	t := v.Type()
	name := t.String()
	if strings.HasPrefix(name, "atomic.Pointer[") {
		w.atomic(v)
		return
	}
	if i := strings.IndexByte(name, '['); i >= 0 {
		name = name[:i] // a generic type
	}
	if ours := strings.Contains(t.PkgPath(), "pvrdmad/"); !ours && t.PkgPath() != "sync/atomic" {
		return // locks, timers, functions of the standard library
	}
	if w.passes(name + ".*") {
		return
	}
	for i := range t.NumField() {
		if f := t.Field(i); !w.passes(name + "." + f.Name) {
			w.in("."+f.Name, v.Field(i))
		}
	}
}

// atomic follows an atomic.Pointer, which tells the type of its target by a field of no size.
func (w *walker) atomic(v reflect.Value) {
	target := v.FieldByName("v").UnsafePointer()
	if target != nil {
		w.pointer(reflect.NewAt(v.Field(0).Type().Elem().Elem(), target))
	}
}

// passes reports whether a field is left out.
func (w *walker) passes(field string) bool {
	out := passing[field] != ""
	if out && w.passed != nil {
		w.passed[field] = true
	}
	return out
}

// in walks a part of the value that the path leads to.
func (w *walker) in(step string, v reflect.Value) {
	n := len(w.path)
	w.path = append(w.path, step...)
	w.walk(v)
	w.path = w.path[:n]
}

func (w *walker) elements(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 && (v.Kind() == reflect.Slice || v.CanAddr()) {
		if b := bytes.TrimRight(v.Bytes(), "\x00"); len(b) != 0 {
			w.line(hex.EncodeToString(b))
		}
		return
	}
	if v.Kind() == reflect.Slice && v.Len() != 0 {
		w.in("#", reflect.ValueOf(v.Len()))
	}
	for i := range v.Len() {
		w.in("["+strconv.Itoa(i)+"]", v.Index(i))
	}
}

// entries writes a map in an order that does not depend on where its keys lie.
func (w *walker) entries(v reflect.Value) {
	w.in("#", reflect.ValueOf(v.Len()))
	keyed := map[string]reflect.Value{}
	for it := v.MapRange(); it.Next(); {
		if k := it.Key(); k.Kind() != reflect.Pointer {
			keyed[fmt.Sprint(k)] = it.Value()
			continue
		}
		// What a set of pointers holds is found by other ways, too; that it is in there is what the set adds.
		n, ok := w.seen[it.Key().Pointer()]
		if !ok {
			n = -1
		}
		keyed["object "+strconv.Itoa(n)] = it.Value()
	}
	keys := make([]string, 0, len(keyed))
	for k := range keyed {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		w.in("{"+k+"}", keyed[k])
	}
}

func (w *walker) scalar(v reflect.Value) {
	if v.IsZero() {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		w.line("true")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.line(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.line(strconv.FormatUint(v.Uint(), 10))
	case reflect.String:
		w.line(v.String())
	}
}

func (w *walker) line(value string) {
	w.lines = append(w.lines, string(w.path)+" "+value)
}

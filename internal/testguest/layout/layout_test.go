// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
)

func load(t *testing.T) *layout.Layout {
	t.Helper()
	l, err := layout.Load()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTheSizesThatTheDriverAssertsAreThoseOfTheLayout(t *testing.T) {
	l := load(t)
	for name, size := range map[string]int{
		"pvrdma_device_shared_region": 280, "pvrdma_cmd_req": 184, "pvrdma_cmd_resp": 176, "pvrdma_cqe": 64,
		"pvrdma_eqe": 8, "pvrdma_cqne": 4, "pvrdma_sq_wqe_hdr": 80, "pvrdma_rq_wqe_hdr": 16, "pvrdma_sge": 16,
	} {
		if got := l.Size(name); got != size {
			t.Errorf("sizeof(struct %s) = %d, want %d", name, got, size)
		}
	}
}

func TestAFieldIsWrittenWhereTheCompilerPutsIt(t *testing.T) {
	l := load(t)
	v := l.New("pvrdma_cqe").Set("imm_data", 0x01020304).Set("qp", 0x1122334455667788)

	if got := v.Bytes()[28:32]; !bytes.Equal(got, []byte{1, 2, 3, 4}) {
		t.Errorf("imm_data, a big-endian field, lies as % x", got)
	}
	if got := v.Bytes()[8:16]; !bytes.Equal(got, []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}) {
		t.Errorf("qp, a little-endian field, lies as % x", got)
	}
	if got := v.Get("qp"); got != 0x1122334455667788 {
		t.Errorf("qp reads back as %#x", got)
	}
}

func TestANestedFieldIsNamedByItsPath(t *testing.T) {
	f := load(t).Field("pvrdma_sq_wqe_hdr", "wr.ud.av.gid_index")
	if f.Offset != 65 || f.Size != 1 {
		t.Errorf("wr.ud.av.gid_index lies at %d+%d, want 65+1", f.Offset, f.Size)
	}
}

func TestABitFieldLeavesItsNeighboursAlone(t *testing.T) {
	v := load(t).New("pvrdma_gos_info").Set("gos_bits", 2).Set("gos_type", 1).Set("gos_ver", 1)
	if got := v.Bytes()[:4]; !bytes.Equal(got, []byte{0x46, 0, 0, 0}) {
		t.Errorf("a 64-bit Linux, version 1, is % x, want 46 00 00 00", got)
	}
	if v.Set("gos_type", 0xff).Get("gos_ver") != 1 || v.Get("gos_type") != 15 || v.Get("gos_bits") != 2 {
		t.Errorf("after gos_type overflowed the word is % x", v.Bytes()[:4])
	}
}

func TestAConstantIsFoundByNameAndByValue(t *testing.T) {
	l := load(t)
	if got := l.Const("PVRDMA_WC_WR_FLUSH_ERR"); got != 5 {
		t.Errorf("PVRDMA_WC_WR_FLUSH_ERR = %d, want 5", got)
	}
	if got := l.ConstName("PVRDMA_QPS_", 3); got != "PVRDMA_QPS_RTS" {
		t.Errorf("state 3 is called %s", got)
	}
	if got := l.ConstName("PVRDMA_QPS_", 99); got != "PVRDMA_QPS_99" {
		t.Errorf("a state that does not exist is called %s", got)
	}
}

func TestAMisspeltNamePanics(t *testing.T) {
	l := load(t)
	for name, f := range map[string]func(){
		"constant": func() { l.Const("PVRDMA_NONE") },
		"struct":   func() { l.Size("pvrdma_none") },
		"field":    func() { l.Field("pvrdma_cqe", "none") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestAFileThatContradictsItselfIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "layout.json")
	text := `{"structs":{"s":{"size":1,"fields":{}}},"enums":{"e":{"A":1}},"macros":{"A":2}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := layout.LoadFile(path); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("err = %v, want one that names the contradiction", err)
	}
}

func TestTheLeavesOfAStructureAreItsFieldsDownToTheLast(t *testing.T) {
	l := load(t)
	want := []string{
		"hdr.response", "hdr.cmd", "hdr.reserved", "pdir_dma", "ctx_handle", "cqe", "nchunks", "reserved",
	}
	if got := l.Leaves("pvrdma_cmd_create_cq"); !slices.Equal(got, want) {
		t.Errorf("CREATE_CQ has the fields %v, want %v", got, want)
	}
	if got := l.Structs("pvrdma_cq"); !slices.Equal(got, []string{"pvrdma_cqe", "pvrdma_cqne"}) {
		t.Errorf("the structures that begin with pvrdma_cq are %v", got)
	}
}

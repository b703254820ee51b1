// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What a command names is looked up when it runs, so a misspelling would show late. This finds it without a device.
func TestEveryNameInTheCommandsIsOneOfTheHeaders(t *testing.T) {
	l := load(t)
	found := 0
	for _, file := range []string{"cmd_port.go", "cmd_object.go", "cmd_qp.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range strings.Split(string(text), "\nfunc ") {
			for _, c := range regexp.MustCompile(`(?:newCommand|destroy)\("(\w+)", "(\w+)"`).FindAllStringSubmatch(body, -1) {
				found++
				l.Const("PVRDMA_CMD_" + c[2])
				for _, f := range regexp.MustCompile(`(?:Set|SetBytes|,)\(?\s?"([a-z_0-9.]+)", (?:uint64|handle|bit|p\.|gid|attr)`).
					FindAllStringSubmatch(body, -1) {
					l.Field("pvrdma_cmd_"+c[1], f[1])
				}
			}
			for _, c := range regexp.MustCompile(`ack = "(\w+)"`).FindAllStringSubmatch(body, -1) {
				l.Const("PVRDMA_CMD_" + c[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d commands, want at least 20", found)
	}
}

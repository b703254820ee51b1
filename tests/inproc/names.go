// SPDX-License-Identifier: Apache-2.0

package inproc

import "strings"

// cmdConst is the constant of a command's code: PVRDMA_CMD_CREATE_CQ for create_cq.
func cmdConst(name string) string { return "PVRDMA_CMD_" + strings.ToUpper(name) }

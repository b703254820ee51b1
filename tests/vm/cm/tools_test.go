// SPDX-License-Identifier: Apache-2.0

//go:build vm

package cm

import (
	"fmt"
	"strings"
)

// firstPort is the port of a tool's first server; others of the same tool have the next ones.
const firstPort = 7500

// batch is how many servers of one tool wait at the same time.
const batch = 50

// tool is a program of Debian's rdmacm-utils that connects. In its two commands ADDR is the server's address, PORT a
// port and COUNT a number of connections.
type tool struct {
	name, server, client string
	// many says that one process makes all COUNT connections; otherwise each has two processes of its own.
	many bool
}

// tools are all that connect and end by themselves. Those that can compare what they get are told to. rstream blocks: it
// would poll for a connection otherwise, 50 of it at a time.
var tools = []tool{
	{
		name:   "rping",
		server: "rping -s -a ADDR -p PORT -V -C 4 -S 5000",
		client: "rping -c -a ADDR -p PORT -V -C 4 -S 5000",
	},
	{
		// Queue pairs of its own, which it moves with what rdma_init_qp_attr(3) gives.
		name:   "rping -q",
		server: "rping -s -q -a ADDR -p PORT -V -C 4 -S 5000",
		client: "rping -c -q -a ADDR -p PORT -V -C 4 -S 5000",
	},
	{
		name:   "ucmatose",
		server: "ucmatose -b ADDR -p PORT -c COUNT -C 10 -S 3000",
		client: "ucmatose -s ADDR -p PORT -c COUNT -C 10 -S 3000",
		many:   true,
	},
	{
		name:   "udaddy",
		server: "udaddy -b ADDR -c COUNT -C 10 -S 1000",
		client: "udaddy -s ADDR -c COUNT -C 10 -S 1000",
		many:   true,
	},
	{
		name:   "rdma_client",
		server: "rdma_server -p PORT",
		client: "rdma_client -s ADDR -p PORT",
	},
	{
		name:   "rstream",
		server: "rstream -b ADDR -p PORT -T b -T v -S 30000 -C 3 -I 2",
		client: "rstream -s ADDR -p PORT -T b -T v -S 30000 -C 3 -I 2",
	},
}

// command fills in a command of the tool.
func command(text, addr string, count int, port string) string {
	return strings.NewReplacer("ADDR", addr, "PORT", port, "COUNT", fmt.Sprint(count)).Replace(text)
}

// serve is a script that starts n servers, says that they listen, and fails if one of them does.
func (c tool) serve(addr string, n int) string {
	processes, connections := n, 1
	if c.many {
		processes, connections = 1, n
	}
	return fmt.Sprintf(`
modprobe rdma_ucm || exit 4
pids=
for port in $(seq %[1]d $((%[1]d + %[2]d - 1))); do
	%[3]s >server.$port 2>&1 &
	pids="$pids $!:$port"
done
until [ "$(rdma -d resource show cm_id | grep -c 'state LISTEN')" -ge %[2]d ]; do
	for p in $pids; do kill -0 ${p%%:*} || { cat server.${p#*:} >&2; exit 5; }; done
	sleep 0.05
done
echo listening
failed=0
for p in $pids; do
	wait ${p%%:*}; s=$?
	[ $s = 0 ] || { failed=1; echo "%[4]s: server on port ${p#*:}: status $s" >&2; tail -n 5 server.${p#*:} >&2; }
done
exit $failed
`, firstPort, processes, command(c.server, addr, connections, "$port"), c.name)
}

// connect is a script that runs the clients of n servers, one after the other, and fails at the first that does.
func (c tool) connect(addr string, n int) string {
	processes, connections := n, 1
	if c.many {
		processes, connections = 1, n
	}
	return fmt.Sprintf(`
modprobe rdma_ucm || exit 4
for port in $(seq %[1]d $((%[1]d + %[2]d - 1))); do
	%[3]s >client 2>&1 || { echo "%[4]s: client for port $port: status $?" >&2; tail -n 5 client >&2; exit 1; }
done
`, firstPort, processes, command(c.client, addr, connections, "$port"), c.name)
}

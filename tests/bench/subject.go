// SPDX-License-Identifier: Apache-2.0

package main

// subject is one thing that is measured. Each has a file of its own, with what its processes do for it: its roles'
// operations are in the lists below.
type subject struct {
	name string
	// long subjects are left out of the short form.
	long bool
	// measure returns one result for each line of the report.
	measure func(b *bench) ([]result, error)
}

// subjects are all, in the order in which they are measured.
func subjects() []subject {
	return []subject{
		{name: "write64", measure: measureLatency},
		{name: "rate64", measure: measureRate},
		{name: "operations", measure: measureOperations},
		{name: "bandwidth", measure: measureBandwidth},
		{name: "queues", measure: measureQueues},
		{name: "command", measure: measureCommand},
		{name: "connect", measure: measureConnect},
		{name: "interrupts", measure: measureInterrupts},
		{name: "idle", measure: measureIdle},
		{name: "metrics", measure: measureMetrics},
		{name: "neighbour", measure: measureNeighbours},
		{name: "syscalls", measure: measureSyscalls},
	}
}

// operations are what a child process of each role can be told to do.
func operations(role string) map[string]operation {
	switch role {
	case roleGuest:
		return map[string]operation{
			"boot": op(bootGuests), "shared": op(makeShared), "latency": op(flowLatency), "rate": op(flowRate),
			"count": op(flowCount), "ping": op(ping), "layout": op(memoryLayout),
			"door": op(openDoors), "command": op(commandLatency), "shut": op(shutDoors),
			"connect": op(connectStorm), "interrupts": op(countInterrupts), "storm": op(runStorm), "bare door": op(openBareDoor), "victim": op(beVictim),
		}
	case roleFar:
		return map[string]operation{"pong": op(pong), "bare": op(bareWork), "memcpy": op(memcpy), "answer": op(answerBarely)}
	}
	return nil
}

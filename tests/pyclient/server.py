# SPDX-License-Identifier: Apache-2.0
"""The server under test as a process: its socket, and the numbers that it prints."""

import json
import subprocess
import time

import vfio_user as vu

# QEMU 11.1's proposal, word for word as vfiouser/testdata/cases.md gives it.
QEMU_VERSION = (
    b'{"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "max_msg_fds": 16, '
    b'"max_data_xfer_size": 1048576, "pgsizes": 4096, "max_dma_maps": 65535, "write_multiple": true}}\0'
)

# Seconds in which the server must have noticed that a client is gone.
SETTLE = 5.0


class Server:
    def __init__(self, program, path):
        self.path = path
        self.process = subprocess.Popen(
            [program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        line = self.process.stdout.readline()
        if line.strip() != "ready":
            raise AssertionError(f"the server printed {line!r} instead of ready")

    def stop(self):
        self.process.stdin.close()
        if self.process.wait(vu.PATIENCE) != 0:
            raise AssertionError(f"the server ended with {self.process.returncode}")

    def numbers(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the server is gone")
        return json.loads(line)

    def settled(self, agree):
        """The numbers once agree(numbers) says nothing, or what it says after SETTLE seconds."""
        deadline = time.monotonic() + SETTLE
        while True:
            numbers = self.numbers()
            complaint = agree(numbers)
            if not complaint:
                return numbers
            if time.monotonic() > deadline:
                raise AssertionError(complaint)
            time.sleep(0.002)

    def connect(self):
        """A connection on which nothing was sent."""
        return vu.Client(self.path)

    def open(self):
        """A connection on which QEMU's VERSION was answered."""
        client = vu.Client(self.path)
        reply = client.call(vu.VERSION, vu.version(text=QEMU_VERSION))
        if reply.failed:
            raise AssertionError(f"QEMU's VERSION was refused: {reply}")
        client.opening = reply
        return client


def moved(before, after):
    """Which counters of a named group moved between two readings, and by how much."""
    return {key: after.get(key, 0) - before.get(key, 0) for key in {*before, *after} if after.get(key, 0) != before.get(key, 0)}

# SPDX-License-Identifier: Apache-2.0
"""A client of the vfio-user protocol, written from its documents alone.

The documents are QEMU's docs/interop/vfio-user.rst and linux/vfio.h. This file shares no code with the server and none
with the client in Go, so that one misreading of the protocol cannot pass on both sides. It offers frames as bytes:
whoever uses it decides what is in them, nonsense included.
"""

import array
import errno
import json
import os
import select
import socket
import struct

# Commands, see the table in section "Commands".
VERSION = 1
DMA_MAP = 2
DMA_UNMAP = 3
DEVICE_GET_INFO = 4
DEVICE_GET_REGION_INFO = 5
DEVICE_GET_REGION_IO_FDS = 6
DEVICE_GET_IRQ_INFO = 7
DEVICE_SET_IRQS = 8
REGION_READ = 9
REGION_WRITE = 10
DMA_READ = 11
DMA_WRITE = 12
DEVICE_RESET = 13
REGION_WRITE_MULTI = 15
DEVICE_FEATURE = 16
MIG_DATA_READ = 17
MIG_DATA_WRITE = 18

# Header flags.
TYPE_MASK = 0xF
TYPE_COMMAND = 0
TYPE_REPLY = 1
NO_REPLY = 1 << 4
ERROR = 1 << 5

HEADER = struct.Struct("<HHIII")  # message id, command, message size, flags, error

# struct vfio_irq_set's flags, linux/vfio.h.
IRQ_DATA_NONE = 1 << 0
IRQ_DATA_BOOL = 1 << 1
IRQ_DATA_EVENTFD = 1 << 2
IRQ_ACTION_MASK = 1 << 3
IRQ_ACTION_UNMASK = 1 << 4
IRQ_ACTION_TRIGGER = 1 << 5

# struct vfio_region_info's flags.
REGION_FLAG_READ = 1 << 0
REGION_FLAG_WRITE = 1 << 1
REGION_FLAG_MMAP = 1 << 2
REGION_FLAG_CAPS = 1 << 3

# VFIO_USER_DMA_MAP's flags.
DMA_READABLE = 1 << 0
DMA_WRITEABLE = 1 << 1

# Seconds after which a server that says nothing has failed the case.
PATIENCE = 20.0


class Closed(Exception):
    """The server closed the connection."""


class Reply:
    """One message from the server."""

    def __init__(self, head, payload, fds):
        self.id, self.command, self.size, self.flags, self.error = HEADER.unpack(head)
        self.payload = payload
        self.fds = fds

    @property
    def failed(self):
        return bool(self.flags & ERROR)

    def __str__(self):
        what = errno.errorcode.get(self.error, self.error) if self.failed else "ok"
        return f"reply id {self.id} command {self.command} size {self.size} {what} payload {self.payload.hex()}"


def frame(command, payload=b"", *, msg_id=1, flags=TYPE_COMMAND, size=None, error=0):
    """One message. size lies about its length if it is given."""
    if size is None:
        size = HEADER.size + len(payload)
    return HEADER.pack(msg_id, command, size, flags, error) + payload


def version(major=0, minor=0, capabilities=None, text=None):
    """A VERSION payload. text is sent as it is; else the capabilities as JSON with its NUL; else nothing."""
    data = b""
    if text is not None:
        data = text
    elif capabilities is not None:
        data = json.dumps({"capabilities": capabilities}).encode() + b"\0"
    return struct.pack("<HH", major, minor) + data


def dma_map(address, size, *, offset=0, flags=DMA_READABLE | DMA_WRITEABLE, argsz=32):
    return struct.pack("<IIQQQ", argsz, flags, offset, address, size)


def dma_unmap(address, size, *, flags=0, argsz=24):
    return struct.pack("<IIQQ", argsz, flags, address, size)


def device_info(argsz=16, flags=0, regions=0, irqs=0):
    return struct.pack("<IIII", argsz, flags, regions, irqs)


def region_info(index, *, argsz=32, flags=0, cap_offset=0, size=0, offset=0):
    return struct.pack("<IIIIQQ", argsz, flags, index, cap_offset, size, offset)


def irq_info(index, *, argsz=16, flags=0, count=0):
    return struct.pack("<IIII", argsz, flags, index, count)


def irq_set(index, start, count, flags, data=b"", *, argsz=None):
    if argsz is None:
        argsz = 20 + len(data)
    return struct.pack("<IIIII", argsz, flags, index, start, count) + data


def region_access(region, offset, count, data=b""):
    return struct.pack("<QII", offset, region, count) + data


def write_multi(entries, *, count=None):
    """entries are (offset, region, bytes of data, up to 8 of them)."""
    if count is None:
        count = len(entries)
    body = struct.pack("<Q", count)
    for offset, region, data in entries:
        body += struct.pack("<QII", offset, region, len(data)) + data.ljust(8, b"\0")
    return body


class Client:
    """A connection to a server. Every method that waits has the patience of PATIENCE."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(path)
        self.rest = b""
        self.fds = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        self.sock.close()

    def send(self, data, fds=()):
        """Sends bytes, and file descriptors with the first of them. A server that is gone raises Closed."""
        try:
            if fds:
                rights = array.array("i", fds)
                sent = self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                data = data[sent:]
            if data:  # an empty send would fail on a connection that the server has closed meanwhile
                self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as gone:
            raise Closed() from gone

    def _fill(self, length):
        while len(self.rest) < length:
            try:
                data, fds, _, _ = socket.recv_fds(self.sock, 65536, 64)
            except ConnectionResetError as gone:
                raise Closed() from gone
            self.fds += fds
            if not data:
                raise Closed()
            self.rest += data

    def receive(self):
        """The next message of the server. close() closes its file descriptors.

        They are this message's only if nothing behind it was read with it, as after call().
        """
        known = len(self.fds)
        self._fill(HEADER.size)
        head = self.rest[: HEADER.size]
        size = HEADER.unpack(head)[2]
        if size < HEADER.size:
            raise AssertionError(f"the server sent a message of size {size}")
        self._fill(size)
        payload = self.rest[HEADER.size : size]
        self.rest = self.rest[size:]
        return Reply(head, payload, self.fds[known:])

    def call(self, command, payload=b"", *, fds=(), **header):
        """Sends one command and returns its reply, checked to be the reply of this command."""
        self.send(frame(command, payload, **header), fds)
        reply = self.receive()
        want = header.get("msg_id", 1)
        if (reply.id, reply.command, reply.flags & TYPE_MASK) != (want, command, TYPE_REPLY):
            raise AssertionError(f"command {command} id {want} was answered by {reply}")
        if reply.failed and reply.size != HEADER.size:
            raise AssertionError(f"an error reply has a payload: {reply}")
        return reply

    def silent(self, seconds=0.05):
        """Whether the server sends nothing for a while and keeps the connection."""
        return not self.rest and not select.select([self.sock], [], [], seconds)[0]

    def end(self):
        """What the server says next: "end of file" or "reset" if it closes the connection, else what it is instead."""
        try:
            return f"{self.receive()}"
        except Closed as closed:
            if self.rest:
                return f"{len(self.rest)} bytes of a message"
            return "reset" if closed.__cause__ else "end of file"
        except TimeoutError:
            return "nothing"

    def silent_end(self):
        """Whether the server closes the connection without another word."""
        return self.end() in ("end of file", "reset")

# SPDX-License-Identifier: Apache-2.0
"""Rows of sequences.tsv about one command that is served: VERSION, the queries, reads and writes of regions."""

import json
import mmap
import struct

import vfio_user as vu
from cases import BAR0, BAR1, BAR2, BAR3, CONFIG, ROM, VGA
from server import QEMU_VERSION
from turn import PANIC, REFUSE, WRITES, data_of, each, expect, plays

SERVERS = {"max_msg_fds": 16, "max_data_xfer_size": 4096, "max_dma_maps": 65535, "pgsizes": 4096}


def negotiate(turn, text):
    """Sends VERSION 0.0 and returns the reply, whose version has to be 0.0 as well."""
    reply = turn.do(vu.VERSION, vu.version(text=text))
    expect("version", struct.unpack_from("<HH", reply.payload), (0, 0))
    return reply


def capabilities(reply):
    data = reply.payload[4:]
    expect("NULs in the data", (data.count(b"\0"), data[-1:]), (1, b"\0"))
    members = json.loads(data[:-1])
    expect("members of the data", list(members), ["capabilities"])
    return members["capabilities"]


def same_json(turn, what, got, want):
    turn.then(what, json.dumps(got, sort_keys=True), json.dumps(want, sort_keys=True))


@plays("version-qemu")
def _(turn):
    reply = turn.answer(negotiate(turn, QEMU_VERSION))
    same_json(turn, "capabilities", capabilities(reply), {**SERVERS, "write_multiple": True})
    turn.then("a reply not longer than the request", len(reply.payload) <= 4 + len(QEMU_VERSION), True)


@plays("version-bare")
def _(turn):
    same_json(turn, "capabilities", capabilities(turn.answer(negotiate(turn, b""))), SERVERS)


@plays("version-minor-7")
def _(turn):
    reply = turn.answer(turn.call(vu.VERSION, vu.version(minor=7, text=b"{}\0")))
    turn.then("version", struct.unpack_from("<HH", reply.payload), (0, 0))


@plays("version-no-room")
def _(turn):
    turn.then("payload", len(turn.answer(negotiate(turn, b"{}\0")).payload), 4)


@plays("version-twin-socket")
def _(turn):
    text = b'{"capabilities":{"twin_socket":{"supported":true}}}' + b" " * 200 + b"\0"
    reply = turn.answer(negotiate(turn, text))
    turn.then("twin_socket", "twin_socket" in capabilities(reply), False)
    turn.then("files", len(reply.fds), 0)


@each({
    "version-behind-nul": (b"{}\0\0garbage",),
    "version-unknown-capability": (b'{"capabilities":{"speed":[1,2]},"name":"x"}\0',),
    "version-null-capabilities": (b'{"capabilities":null}\0',),
    "version-pgsizes-several": (b'{"capabilities":{"pgsizes":2101248}}\0',),
    "version-4100-bytes": (b"{}" + b" " * 4093 + b"\0",),
})
def _(turn, text):
    turn.answer(negotiate(turn, text))


@each({
    "info": (vu.device_info(),),
    "info-argsz-4096": (vu.device_info(argsz=4096),),
    "info-reserved": (vu.device_info(16, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),),
})
def _(turn, payload):
    reply = turn.answer(turn.call(vu.DEVICE_GET_INFO, payload))
    turn.then("argsz, flags, regions, IRQ types", struct.unpack("<IIII", reply.payload), (16, 3, 9, 5))


@plays("header-error-field")
def _(turn):
    turn.answer(turn.call(vu.DEVICE_GET_INFO, vu.device_info(), error=22))


@each({
    "irq-info-intx": (0, 7, 1),
    "irq-info-msi": (1, 1, 0),
    "irq-info-msix": (2, 1, 3),
    "irq-info-err": (3, 1, 1),
    "irq-info-req": (4, 1, 1),
})
def _(turn, index, flags, count):
    reply = turn.answer(turn.call(vu.DEVICE_GET_IRQ_INFO, vu.irq_info(index)))
    turn.then("argsz, flags, index, count", struct.unpack("<IIII", reply.payload), (16, flags, index, count))


def region(turn, index, argsz, want, files=0):
    """Asks for a region. want has the fields of the reply of which the row speaks."""
    reply = turn.answer(turn.call(vu.DEVICE_GET_REGION_INFO, vu.region_info(index, argsz=argsz)))
    names = ("argsz", "flags", "index", "cap_offset", "size", "offset")
    got = dict(zip(names, struct.unpack_from("<IIIIQQ", reply.payload)))
    turn.then("region", {name: got[name] for name in want}, want)
    turn.then("payload", len(reply.payload), got["argsz"] if got["argsz"] <= argsz else 32)
    turn.then("files", len(reply.fds), files)
    return reply


def sparse_areas(turn, reply, *want):
    """Compares the areas of a reply whose capability is at offset 32."""
    header = struct.unpack_from("<HHII", reply.payload, 32)  # id, version, next, nr_areas
    turn.then("capability", header, (1, 1, 0, len(want)))
    areas = [struct.unpack_from("<QQ", reply.payload, 48 + 16 * n) for n in range(len(want))]
    turn.then("areas", areas, list(want))


@each({
    "region-info-bar0": (BAR0, 32, {"argsz": 32, "flags": 3, "index": 0, "cap_offset": 0, "size": 16384, "offset": 0}),
    "region-info-bar1-32": (BAR1, 32, {"argsz": 48, "flags": 7, "index": 1, "cap_offset": 0, "size": 4096}),
    "region-info-bar2-79": (BAR2, 79, {"argsz": 80, "flags": 7, "index": 2, "cap_offset": 0, "size": 16384}),
    "region-info-bar3": (BAR3, 32, {"argsz": 32, "flags": 1, "index": 3, "size": 4096}),
    "region-info-rom": (ROM, 32, {"argsz": 32, "flags": 0, "index": 6, "size": 0}),
    "region-info-config": (CONFIG, 32, {"argsz": 32, "flags": 3, "index": 7, "size": 256}),
    "region-info-vga": (VGA, 32, {"argsz": 32, "flags": 0, "index": 8, "size": 0}),
})
def _(turn, index, argsz, want):
    region(turn, index, argsz, want)


@plays("region-info-bar1-48")
def _(turn):
    sparse_areas(turn, region(turn, BAR1, 48, {"argsz": 48, "flags": 15, "cap_offset": 32}))


@plays("region-info-bar2-80")
def _(turn):
    want = {"argsz": 80, "flags": 15, "cap_offset": 32, "size": 16384, "offset": 0}
    sparse_areas(turn, region(turn, BAR2, 80, want, files=1), (0x1000, 0x1000), (0x2000, 0x2000))


@each({
    "region-info-no-multiple": (b'{"capabilities":{"max_msg_fds":8}}\0', BAR1, 48),
    "region-info-no-fds": (b'{"capabilities":{"max_msg_fds":0}}\0', BAR2, 80),
})
def _(turn, text, index, argsz):
    negotiate(turn, text)
    region(turn, index, argsz, {"argsz": 32, "flags": 3, "cap_offset": 0})


@plays("region-mapped")
def _(turn):
    info = turn.do(vu.DEVICE_GET_REGION_INFO, vu.region_info(BAR2, argsz=80))
    with mmap.mmap(info.fds[0], 0x1000, offset=0x1000) as area:
        area[8:12] = bytes([1, 2, 3, 4])
        reply = turn.answer(turn.call(vu.REGION_READ, vu.region_access(BAR2, 0x1008, 4)))
    turn.then("data", data_of(reply, BAR2, 0x1008, 4), bytes([1, 2, 3, 4]))


@each({
    "read-3-bytes": (BAR3, 5, bytes([5, 6, 7])),
    "read-4096": (BAR3, 0, bytes(range(256)) * 16),
    "read-0-bytes": (CONFIG, 256, b""),
    "read-whole-config": (CONFIG, 0, bytes(256)),
})
def _(turn, index, offset, want):
    reply = turn.answer(turn.call(vu.REGION_READ, vu.region_access(index, offset, len(want))))
    turn.then("data", data_of(reply, index, offset, len(want)), want)


@plays("write-0-bytes")
def _(turn):
    reply = turn.answer(turn.write(BAR0, 0, b""))
    turn.then("payload", len(reply.payload), 16)
    turn.then("writes", turn.register(WRITES), 0)


@plays("write-read")
def _(turn):
    data = bytes([170, 187, 204])
    reply = turn.answer(turn.write(BAR0, 4093, data))
    turn.then("payload", reply.payload, vu.region_access(BAR0, 4093, 3))
    turn.then("data", turn.read(BAR0, 4093, 3), data)
    turn.then("writes", turn.register(WRITES), 1)


@plays("write-4096")
def _(turn):
    turn.answer(turn.write(BAR0, 12288, b"w" * 4096))


@plays("write-posted")
def _(turn):
    turn.post(vu.REGION_WRITE, vu.region_access(BAR0, 0, 1, b"\7"))
    reply = turn.answer(turn.call(vu.REGION_READ, vu.region_access(BAR0, 0, 1)))
    turn.then("data", data_of(reply, BAR0, 0, 1), b"\7")


@each({
    "refused-posted": (vu.REGION_READ, vu.region_access(99, 0, 4)),
    "command-posted": (99, bytes(4)),
})
def _(turn, command, payload):
    turn.post(command, payload)
    turn.unanswered()


@each({"device-refuses": (16,), "device-refuses-without-errno": (0,)})
def _(turn, value):
    turn.answer(turn.call(vu.REGION_WRITE, vu.region_access(BAR1, REFUSE, 4, struct.pack("<I", value))))


@plays("device-panics")
def _(turn):
    turn.client.send(vu.frame(vu.REGION_WRITE, vu.region_access(BAR1, PANIC, 4, struct.pack("<I", 1))))
    turn.unanswered()
    turn.ended = turn.client.silent_end()
    turn.panics, turn.connections = 1, 2
    turn.moved(panics=1, panic=1)
    with turn.server.open() as following:
        turn.then("the next client is refused", following.call(vu.DEVICE_GET_INFO, vu.device_info()).failed, False)

# SPDX-License-Identifier: Apache-2.0
"""Rows of sequences.tsv about many writes in one message, and about the client's memory."""

import struct

import vfio_user as vu
from cases import BAR0, BAR1, BAR3, MSIX, PAGE, READ_WRITE
from turn import DIGEST, MAPPINGS, RAISE, REFUSE, WRITES, each, expect, plays

UNMAP_ALL = 2  # VFIO_DMA_UNMAP_FLAG_ALL


def entry(offset, region, count, data):
    """One write of a REGION_WRITE_MULTI, whatever its count."""
    return struct.pack("<QII8s", offset, region, count, data)


def two_hundred(changes=None):
    """The 200 writes of the rows multi-*, with some fields of some of them changed: (offset, region, count)."""
    writes = [(8 * i, BAR0, 1 + i % 8) for i in range(200)]
    for i, fields in (changes or {}).items():
        offset, region, count = writes[i]
        writes[i] = (fields.get("offset", offset), fields.get("region", region), fields.get("count", count))
    return writes


def multi_payload(writes):
    data = bytes(range(1, 9))
    return struct.pack("<Q", len(writes)) + b"".join(entry(*fields, data) for fields in writes)


def digest(writes):
    """FNV-1a of writes, as the device's register has it."""
    value = 0x811C9DC5
    for offset, region, count in writes:
        for byte in struct.pack("<QII", offset, region, count) + bytes(range(1, 1 + count)):
            value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def done(turn, payload, count):
    """Sends a REGION_WRITE_MULTI, which is answered with so many writes done."""
    reply = turn.answer(turn.call(vu.REGION_WRITE_MULTI, payload))
    turn.then("wr_cnt", reply.payload, struct.pack("<Q", count))


def device_saw(turn, writes):
    turn.then("number of writes", turn.register(WRITES), len(writes))
    turn.then("digest of the writes", turn.register(DIGEST), digest(writes))


@plays("multi-0")
def _(turn):
    done(turn, multi_payload([]), 0)


@plays("multi-200")
def _(turn):
    done(turn, multi_payload(two_hundred()), 200)
    device_saw(turn, two_hundred())


@plays("multi-200-posted")
def _(turn):
    turn.post(vu.REGION_WRITE_MULTI, multi_payload(two_hundred()))
    turn.unanswered()
    device_saw(turn, two_hundred())


@each({
    "multi-bad-count-9": ({100: {"count": 9}},),
    "multi-bad-count-0": ({100: {"count": 0}},),
    "multi-bad-count-max": ({100: {"count": 0xFFFFFFFF}},),
    "multi-bad-region": ({100: {"region": 9}},),
    "multi-bad-offset": ({100: {"offset": 1 << 63}},),
    "multi-bad-read-only": ({100: {"region": BAR3}},),
    "multi-two-bad": ({50: {"region": 9}, 100: {"count": 0xFFFFFFFF}},),
    "multi-all-bad": ({i: {"region": 9} for i in range(200)},),
})
def _(turn, changes):
    done(turn, multi_payload(two_hundred(changes)), 200 - len(changes))
    device_saw(turn, [fields for i, fields in enumerate(two_hundred()) if i not in changes])


@plays("multi-2729")
def _(turn):
    done(turn, multi_payload([(0, BAR0, 8)] * 2729), 2729)
    turn.then("number of writes", turn.register(WRITES), 2729)


@plays("multi-device-refuses")
def _(turn):
    refused = entry(REFUSE, BAR1, 4, struct.pack("<I", 16))
    done(turn, struct.pack("<Q", 3) + entry(0, BAR0, 1, b"a") + refused + entry(1, BAR0, 1, b"b"), 2)
    turn.then("number of writes", turn.register(WRITES), 2)


@plays("multi-raise")
def _(turn):
    fds = turn.eventfds(1)
    turn.assign(MSIX, 0, fds)
    done(turn, struct.pack("<Q", 3) + entry(RAISE, BAR1, 4, struct.pack("<I", 0x20000)) * 3, 3)
    turn.counts(fds, 3)


def mappings(turn, want):
    turn.then("number of mappings", turn.register(MAPPINGS), want)


def mapped(turn, *ranges):
    """Maps memory without files, as a step of a row."""
    for address, size in ranges:
        expect("a mapping is refused", turn.map(address, size).failed, False)


@plays("map-fd")
def _(turn):
    turn.answer(turn.map(0x1000, 0x4000, turn.memfd(1 << 20), offset=0x2000))
    mappings(turn, 1)
    turn.kept = False  # the file must not be kept: the runner compares while the client is attached


@plays("map-no-fd")
def _(turn):
    turn.answer(turn.map(0xC0000, 0x1000, flags=vu.DMA_READABLE))
    mappings(turn, 1)


@each({"map-mmap-flag": (7,), "map-mmap-and-file-io": (15,)})
def _(turn, flags):
    turn.answer(turn.map(0, PAGE, turn.memfd(), flags=flags))


@plays("map-crooked-offset-no-fd")
def _(turn):
    turn.answer(turn.map(0, PAGE, offset=2048, flags=READ_WRITE))


@each({
    "map-over-same": (0x4000, 0x2000),
    "map-over-inside": (0x5000, 0x1000),
    "map-over-around": (0x3000, 0x4000),
    "map-over-begin": (0x3000, 0x2000),
    "map-over-end": (0x5000, 0x2000),
    "map-over-two": (0x5000, 0x4000),
})
def _(turn, address, size):
    mapped(turn, (0x4000, 0x2000), (0x8000, 0x2000))
    turn.answer(turn.map(address, size, turn.memfd()))
    mappings(turn, 2)


@plays("map-between")
def _(turn):
    mapped(turn, (0x4000, 0x2000), (0x8000, 0x2000))
    turn.answer(turn.map(0x6000, 0x2000))
    mappings(turn, 3)


@plays("map-65536")
def _(turn):
    for start in range(0, 65535, 255):
        pages = range(start, start + 255)  # 257 times 255 are 65535
        turn.client.send(b"".join(vu.frame(vu.DMA_MAP, vu.dma_map(n * PAGE, PAGE), msg_id=n) for n in pages))
        for n in pages:
            expect("a mapping is refused", turn.receive(n, vu.DMA_MAP).failed, False)
    turn.kept = True
    turn.answer(turn.map(65535 * PAGE, PAGE))
    mappings(turn, 65535)


@each({
    "unmap": ([(0x1000, 0x4000)], (0x1000, 0x4000), 0, 0),
    "unmap-range": ([(n, 0x1000) for n in (0x1FF000, 0x200000, 0x201000, 0x3FF000, 0x400000)], (0x200000, 0x200000), 0, 2),
    "unmap-all": ([(0x1000, 0x1000), (0x8000, 0x1000)], (0, 0), UNMAP_ALL, 0),
})
def _(turn, ranges, unmapped, flags, left):
    mapped(turn, *ranges)
    reply = turn.answer(turn.unmap(*unmapped, flags=flags))
    turn.then("the request repeated", reply.payload, vu.dma_unmap(*unmapped, flags=flags))
    mappings(turn, left)


@each({
    "unmap-smaller": ([(0x4000, 0x2000)], (0x4000, 0x1000), 1),
    "unmap-inside": ([(0x4000, 0x2000)], (0x5000, 0x1000), 1),
    "unmap-range-cut": ([(0x4000, 0x1000), (0x5000, 0x2000)], (0x4000, 0x2000), 2),
    "unmap-wrap": ([(0x4000, 0x1000)], (0x4000, (1 << 64) - 1), 1),
})
def _(turn, ranges, unmapped, left):
    mapped(turn, *ranges)
    turn.answer(turn.unmap(*unmapped))
    mappings(turn, left)


@plays("unmap-twice")
def _(turn):
    mapped(turn, (0x4000, 0x2000))
    expect("the first unmapping is refused", turn.unmap(0x4000, 0x2000).failed, False)
    turn.answer(turn.unmap(0x4000, 0x2000))
    mappings(turn, 0)


@plays("unmap-all-of-nothing")
def _(turn):
    turn.answer(turn.unmap(0, 0, flags=UNMAP_ALL))


@plays("unmap-map-burst")
def _(turn):
    whole, low, high = (0, 0x40000000), (0, 0xA0000), (0x100000, 0x3FF00000)
    rom, bios = (0xC0000, 0xB000), (0xCB000, 0x3000)
    file = turn.memfd(0x40000000)
    pieces = [
        (vu.DMA_MAP, vu.dma_map(*low), file),
        (vu.DMA_MAP, vu.dma_map(*rom, flags=vu.DMA_READABLE), ()),
        (vu.DMA_MAP, vu.dma_map(*bios), file),
        (vu.DMA_MAP, vu.dma_map(*high), file),
    ]
    one = (vu.DMA_MAP, vu.dma_map(*whole), file)
    by_piece = [vu.dma_unmap(*piece) for piece in (low, rom, bios, high)]
    by_range, by_flag = [vu.dma_unmap(*whole)], [vu.dma_unmap(0, 0, flags=UNMAP_ALL)]
    ways = [(by_range, by_piece), (by_flag, by_range), (by_range, by_flag)]
    mapped(turn, whole)
    for turns in range(50):
        first, second = ([(vu.DMA_UNMAP, payload, ()) for payload in way] for way in ways[turns % 3])
        burst(turn, first + pieces + second + [one])
    mappings(turn, 1)


def burst(turn, steps):
    """Sends commands without waiting, a write for each, and then compares the answers."""
    messages = [(turn.next_id(), *step) for step in steps]
    for msg_id, command, payload, fds in messages:
        turn.client.send(vu.frame(command, payload, msg_id=msg_id), fds)
    turn.kept = True
    for msg_id, command, payload, _ in messages:
        reply = turn.answer(turn.receive(msg_id, command))
        turn.then("payload", reply.payload, payload if command == vu.DMA_UNMAP else b"")

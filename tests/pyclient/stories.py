# SPDX-License-Identifier: Apache-2.0
"""What a client does with a server that serves: the device of vfiouser/testdata/cases.md, used as its page promises."""

import mmap
import os
import select
import struct
import time

import vfio_user as vu
from cases import BAR0, BAR1, BAR2, BAR3, CONFIG, FD_TRIGGER, INTX, MSIX, NONE_TRIGGER, PAGE, VGA, eventfds, memfd
from server import moved

WRITES, DIGEST, MAPPINGS, RESETS, RAISE, REFUSE, PANIC = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x18

STORIES = []


def story(tell):
    STORIES.append(tell)
    return tell


def expect(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def served(reply):
    if reply.failed:
        raise AssertionError(f"refused: {reply}")
    return reply


def read(client, region, offset, count):
    payload = served(client.call(vu.REGION_READ, vu.region_access(region, offset, count))).payload
    expect("echo of a read", struct.unpack_from("<QII", payload), (offset, region, count))
    expect("length of what was read", len(payload), 16 + count)
    return payload[16:]


def write(client, region, offset, data):
    payload = served(client.call(vu.REGION_WRITE, vu.region_access(region, offset, len(data), data))).payload
    expect("echo of a write", payload, vu.region_access(region, offset, len(data)))


def register(client, offset, value=None):
    if value is None:
        return struct.unpack("<I", read(client, BAR1, offset, 4))[0]
    return client.call(vu.REGION_WRITE, vu.region_access(BAR1, offset, 4, struct.pack("<I", value)))


def fnv1a(digest, data):
    for byte in data:
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return digest


def raised(fd, seconds=1.0):
    """Reads an eventfd's count, waiting for its first event; 0 if none comes."""
    if not select.select([fd], [], [], seconds)[0]:
        return 0
    return os.eventfd_read(fd)


def set_irqs(client, *args, fds=(), **fields):
    served(client.call(vu.DEVICE_SET_IRQS, vu.irq_set(*args, **fields), fds=fds))


@story
def a_device_tells_its_regions_and_interrupts(server):
    with server.open() as client:
        info = struct.unpack("<IIII", served(client.call(vu.DEVICE_GET_INFO, vu.device_info())).payload)
        expect("argsz, flags, regions, irqs", info, (16, 3, 9, 5))
        sizes = {}
        for index in range(9):
            payload = served(client.call(vu.DEVICE_GET_REGION_INFO, vu.region_info(index, argsz=256))).payload
            _, _, echo, _, size, _ = struct.unpack_from("<IIIIQQ", payload)
            expect("region index", echo, index)
            sizes[index] = size
        expect("sizes", sizes, {0: 16384, 1: 4096, 2: 16384, 3: 4096, 4: 0, 5: 0, 6: 0, 7: 256, 8: 0})
        vectors = []
        for index in range(5):
            payload = served(client.call(vu.DEVICE_GET_IRQ_INFO, vu.irq_info(index))).payload
            vectors.append(struct.unpack("<IIII", payload)[3])
        expect("vectors", vectors, [1, 0, 3, 1, 1])


@story
def a_mapped_region_is_the_memory_that_reads_and_writes_see(server):
    with server.open() as client:
        short = served(client.call(vu.DEVICE_GET_REGION_INFO, vu.region_info(BAR2, argsz=32)))
        need = struct.unpack_from("<I", short.payload)[0]
        expect("length of an answer without its capabilities", len(short.payload), 32)
        expect("two areas need", need, 32 + 16 + 2 * 16)
        reply = served(client.call(vu.DEVICE_GET_REGION_INFO, vu.region_info(BAR2, argsz=need)))
        _, flags, _, cap, size, offset = struct.unpack_from("<IIIIQQ", reply.payload)
        expect("flags", flags, vu.REGION_FLAG_READ | vu.REGION_FLAG_WRITE | vu.REGION_FLAG_MMAP | vu.REGION_FLAG_CAPS)
        capability = struct.unpack_from("<HHIII", reply.payload, cap)
        expect("sparse mmap capability", capability, (1, 1, 0, 2, 0))
        areas = struct.unpack_from("<QQQQ", reply.payload, cap + 16)
        expect("areas", areas, (0x1000, 0x1000, 0x2000, 0x2000))
        expect("files", len(reply.fds), 1)
        with mmap.mmap(reply.fds[0], size, offset=offset) as memory:
            write(client, BAR2, 0x1004, b"from the socket")
            expect("mapped bytes", memory[0x1004:0x1013], b"from the socket")
            memory[0x2008:0x2010] = b"from map"
            expect("read bytes", read(client, BAR2, 0x2008, 8), b"from map")


@story
def two_hundred_writes_in_one_message_are_done_in_order(server):
    entries = []
    for n in range(200):
        region = (BAR0, BAR2, CONFIG)[n % 3]
        entries.append((n % 7 * 8, region, bytes([n]) * (n % 8 + 1)))
    digest = 0x811C9DC5
    for offset, region, data in entries:
        digest = fnv1a(digest, struct.pack("<QII", offset, region, len(data)) + data)
    with server.open() as client:
        payload = served(client.call(vu.REGION_WRITE_MULTI, vu.write_multi(entries))).payload
        expect("writes done", payload, struct.pack("<Q", 200))
        expect("writes that the device saw", register(client, WRITES), 200)
        expect("digest of their order", register(client, DIGEST), digest)


@story
def a_bad_write_among_good_ones_is_left_out(server):
    entries = [(0, BAR0, b"a"), (0, VGA, b"b"), (0, BAR3, b"c"), (1, BAR0, b"d")]
    before = server.numbers()["refused"]
    with server.open() as client:
        payload = served(client.call(vu.REGION_WRITE_MULTI, vu.write_multi(entries))).payload
        expect("writes done", payload, struct.pack("<Q", 2))
        expect("what they wrote", read(client, BAR0, 0, 4), b"ad\0\0")
    expect("counters moved", sum(moved(before, server.numbers()["refused"]).values()), 1)


@story
def a_write_without_reply_is_done_before_the_next_message(server):
    with server.open() as client:
        client.send(vu.frame(vu.REGION_WRITE, vu.region_access(BAR0, 8, 4, b"post"), flags=vu.NO_REPLY))
        expect("bytes", read(client, BAR0, 8, 4), b"post")


@story
def a_message_in_pieces_is_one_message(server):
    whole = vu.frame(vu.REGION_READ, vu.region_access(BAR3, 250, 8), msg_id=9)
    with server.open() as client:
        for at in range(len(whole)):
            client.send(whole[at : at + 1])
            time.sleep(0.001)
        reply = served(client.receive())
        expect("id", reply.id, 9)
        expect("bytes", reply.payload[16:], bytes([250, 251, 252, 253, 254, 255, 0, 1]))


@story
def many_messages_at_once_are_answered_in_order(server):
    with server.open() as client:
        client.send(b"".join(vu.frame(vu.REGION_READ, vu.region_access(BAR3, n, 1), msg_id=n) for n in range(100)))
        for n in range(100):
            reply = served(client.receive())
            expect("id and byte", (reply.id, reply.payload[16:]), (n, bytes([n])))


@story
def an_interrupt_raised_too_early_comes_once_when_it_can(server):
    with server.open() as client:
        for _ in range(3):
            served(register(client, RAISE, MSIX << 16 | 1))
        fds = eventfds(1)()
        try:
            set_irqs(client, MSIX, 1, 1, FD_TRIGGER, fds=fds)
            expect("latched interrupts", raised(fds[0]), 1)
            served(register(client, RAISE, MSIX << 16 | 1))
            expect("an interrupt that is not held back", raised(fds[0]), 1)
            set_irqs(client, MSIX, 1, 1, vu.IRQ_DATA_NONE | vu.IRQ_ACTION_MASK)
            served(register(client, RAISE, MSIX << 16 | 1))
            expect("a masked interrupt", raised(fds[0], 0.02), 0)
            set_irqs(client, MSIX, 1, 1, vu.IRQ_DATA_NONE | vu.IRQ_ACTION_UNMASK)
            expect("the same, unmasked", raised(fds[0]), 1)
        finally:
            for fd in fds:
                os.close(fd)


@story
def qemu_adds_a_vector_by_taking_all_away_first(server):
    first, second = eventfds(1)()[0], eventfds(1)()[0]
    try:
        with server.open() as client:
            set_irqs(client, MSIX, 0, 1, FD_TRIGGER, fds=[first])
            set_irqs(client, MSIX, 0, 1, FD_TRIGGER)
            served(register(client, RAISE, MSIX << 16))
            expect("a vector without eventfd", raised(first, 0.02), 0)
            set_irqs(client, MSIX, 0, 0, NONE_TRIGGER)
            set_irqs(client, MSIX, 0, 2, FD_TRIGGER, fds=[first, second])
            expect("the interrupt from between", raised(first), 1)
            served(register(client, RAISE, MSIX << 16 | 1))
            expect("the new vector", (raised(second), raised(first, 0.02)), (1, 0))
    finally:
        os.close(first)
        os.close(second)


@story
def intx_masks_itself(server):
    fds = eventfds(1)()
    try:
        with server.open() as client:
            set_irqs(client, INTX, 0, 1, FD_TRIGGER, fds=fds)
            served(register(client, RAISE, INTX << 16))
            served(register(client, RAISE, INTX << 16))
            expect("interrupts before it is unmasked", (raised(fds[0]), raised(fds[0], 0.02)), (1, 0))
            set_irqs(client, INTX, 0, 1, vu.IRQ_DATA_NONE | vu.IRQ_ACTION_UNMASK)
            expect("and after", raised(fds[0]), 1)
    finally:
        os.close(fds[0])


@story
def memory_is_mapped_once_and_unmapped_by_its_name(server):
    fds = memfd()
    try:
        with server.open() as client:
            before = server.numbers()["fds"]
            served(client.call(vu.DMA_MAP, vu.dma_map(PAGE, PAGE), fds=fds))
            served(client.call(vu.DMA_MAP, vu.dma_map(4 * PAGE, PAGE, flags=vu.DMA_READABLE), fds=fds))
            served(client.call(vu.DMA_MAP, vu.dma_map(8 * PAGE, PAGE)))
            expect("mappings", register(client, MAPPINGS), 3)
            reply = client.call(vu.DMA_MAP, vu.dma_map(0, 3 * PAGE))
            expect("an overlap", reply.error, 17)  # EEXIST
            request = vu.dma_unmap(PAGE, PAGE)
            expect("echo of an unmapping", served(client.call(vu.DMA_UNMAP, request)).payload, request)
            expect("mappings", register(client, MAPPINGS), 2)
            served(client.call(vu.DMA_UNMAP, vu.dma_unmap(0, 0, flags=2)))
            expect("mappings", register(client, MAPPINGS), 0)
            expect("files of the server", server.numbers()["fds"], before)
    finally:
        os.close(fds[0])


@story
def a_burst_of_mappings_leaves_nothing(server):
    fds = memfd()
    try:
        with server.open() as client:
            for turn in range(20):
                client.send(b"".join(vu.frame(vu.DMA_UNMAP, vu.dma_unmap(n * PAGE, PAGE), msg_id=n) for n in range(30) if turn))
                for n in range(30 if turn else 0):
                    served(client.receive())
                for n in range(30):
                    served(client.call(vu.DMA_MAP, vu.dma_map(n * PAGE, PAGE), fds=fds))
            expect("mappings", register(client, MAPPINGS), 30)
    finally:
        os.close(fds[0])


@story
def a_reset_restores_the_device(server):
    with server.open() as client:
        write(client, BAR0, 0, b"gone")
        write(client, CONFIG, 4, b"gone")
        served(register(client, RAISE, MSIX << 16))
        served(client.call(vu.DEVICE_RESET))
        expect("BAR0 and the config space", read(client, BAR0, 0, 4) + read(client, CONFIG, 4, 4), bytes(8))
        expect("writes and resets", (register(client, WRITES), register(client, RESETS)), (0, 1))
        fds = eventfds(1)()
        try:
            set_irqs(client, MSIX, 0, 1, FD_TRIGGER, fds=fds)
            expect("the interrupt from before the reset", raised(fds[0], 0.05), 0)
        finally:
            os.close(fds[0])


@story
def what_the_device_refuses_is_an_error_and_no_end(server):
    with server.open() as client:
        reply = register(client, REFUSE, 5)
        expect("errno", (reply.failed, reply.error), (True, 5))
        expect("a device without an errno fails", register(client, REFUSE, 0).failed, True)
        served(client.call(vu.DEVICE_GET_INFO, vu.device_info()))


@story
def a_device_that_panics_costs_its_client_alone(server):
    before = server.numbers()["panics"]
    with server.open() as client:
        client.send(vu.frame(vu.REGION_WRITE, vu.region_access(BAR1, PANIC, 4, bytes(4))))
        try:
            while True:
                client.receive()
        except vu.Closed:
            pass
    with server.open() as client:
        served(client.call(vu.DEVICE_GET_INFO, vu.device_info()))
    expect("panics", server.numbers()["panics"], before + 1)


@story
def a_second_client_is_turned_away_and_the_next_is_served(server):
    before = server.numbers()
    with server.open() as client:
        with server.connect() as second:
            expect("the second client's end", second.silent_end(), True)
        served(client.call(vu.DEVICE_GET_INFO, vu.device_info()))
    for _ in range(50):
        with server.open() as client:
            served(client.call(vu.DEVICE_GET_INFO, vu.device_info()))
    after = server.numbers()
    expect("busy", after["busy"], before["busy"] + 1)
    expect("connected", after["connected"], before["connected"] + 51)


@story
def a_client_that_goes_in_the_middle_of_a_message_leaves_nothing(server):
    whole = vu.frame(vu.REGION_WRITE, vu.region_access(BAR0, 0, 64, bytes(64)))
    for at in range(1, len(whole)):
        with server.open() as client:
            client.send(whole[:at])
    with server.open() as client:
        expect("writes of halves", register(client, WRITES), 0)

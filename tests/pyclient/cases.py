# SPDX-License-Identifier: Apache-2.0
"""The stimulus of every row of vfiouser/testdata/cases.tsv, by its id.

Each entry returns the bytes to send and the file descriptors that go with their first byte. What the answer must be is
in the table, not here.
"""

import errno
import os

import vfio_user as vu

BAR0, BAR1, BAR2, BAR3, ROM, CONFIG, VGA = 0, 1, 2, 3, 6, 7, 8
INTX, MSI, MSIX, ERR, REQ = 0, 1, 2, 3, 4
PAGE = 4096
TOP = 1 << 64
READ_WRITE = vu.DMA_READABLE | vu.DMA_WRITEABLE

BOOL_TRIGGER = vu.IRQ_DATA_BOOL | vu.IRQ_ACTION_TRIGGER
NONE_TRIGGER = vu.IRQ_DATA_NONE | vu.IRQ_ACTION_TRIGGER
FD_TRIGGER = vu.IRQ_DATA_EVENTFD | vu.IRQ_ACTION_TRIGGER

CASES = {}


def case(name, command, payload=b"", fds=None, **header):
    """Adds the case of one frame. fds makes the descriptors, which the runner closes."""
    if name in CASES:
        raise ValueError(f"two cases are named {name}")
    CASES[name] = lambda: (vu.frame(command, payload, **header), fds() if fds else [])


def eventfds(count):
    """count copies of one eventfd."""

    def make():
        first = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return [first] + [os.dup(first) for _ in range(count - 1)]

    return make


def memfd():
    """One file of a page."""
    fd = os.memfd_create("page", os.MFD_CLOEXEC)
    os.truncate(fd, PAGE)
    return [fd]


def zeros(count):
    return bytes(count)


def framing():
    info = vu.device_info()
    get = vu.DEVICE_GET_INFO
    case("size-1", get, info, size=1)
    case("size-15", get, info, size=15)
    case("size-65537", get, info, size=65537)
    case("size-max", get, info, size=0xFFFFFFFF)
    case("type-reply", get, info, flags=vu.TYPE_REPLY)
    case("type-error-reply", get, info, flags=vu.TYPE_REPLY | vu.ERROR)
    case("type-2", get, info, flags=2)
    case("type-15", get, info, flags=15)
    case("flag-error", get, info, flags=vu.ERROR)
    case("flag-unknown", get, info, flags=1 << 31)


def commands():
    case("command-0", 0, zeros(16))
    case("command-19", 19)
    case("command-65535", 65535, zeros(4))
    case("command-99-fd", 99, zeros(4), eventfds(1))
    case("dma-read", vu.DMA_READ, zeros(16))
    case("dma-write", vu.DMA_WRITE, zeros(16))
    case("region-io-fds", vu.DEVICE_GET_REGION_IO_FDS, zeros(16))
    case("dirty-pages", 14, zeros(8))
    case("device-feature", vu.DEVICE_FEATURE, zeros(8))
    case("mig-data-read", vu.MIG_DATA_READ, zeros(8))
    case("mig-data-write", vu.MIG_DATA_WRITE, zeros(8))
    case("version-twice", vu.VERSION, vu.version(text=b"{}\0"))


def queries():
    case("info-0-bytes", vu.DEVICE_GET_INFO)
    case("info-15-bytes", vu.DEVICE_GET_INFO, zeros(15))
    case("info-17-bytes", vu.DEVICE_GET_INFO, zeros(17))
    case("info-argsz-0", vu.DEVICE_GET_INFO, vu.device_info(argsz=0))
    case("region-info-31-bytes", vu.DEVICE_GET_REGION_INFO, zeros(31))
    case("region-info-argsz-31", vu.DEVICE_GET_REGION_INFO, vu.region_info(BAR0, argsz=31))
    case("region-info-index-9", vu.DEVICE_GET_REGION_INFO, vu.region_info(9))
    case("region-info-index-max", vu.DEVICE_GET_REGION_INFO, vu.region_info(0xFFFFFFFF))
    case("irq-info-12-bytes", vu.DEVICE_GET_IRQ_INFO, zeros(12))
    case("irq-info-index-5", vu.DEVICE_GET_IRQ_INFO, vu.irq_info(5))
    case("irq-info-argsz-0", vu.DEVICE_GET_IRQ_INFO, vu.irq_info(INTX, argsz=0))
    case("reset-payload", vu.DEVICE_RESET, zeros(1))


def files():
    vectors = vu.irq_set(MSIX, 0, 3, FD_TRIGGER)
    one_byte = vu.region_access(BAR0, 0, 1, zeros(1))
    case("reset-fd", vu.DEVICE_RESET, fds=eventfds(1))
    case("info-fd", vu.DEVICE_GET_INFO, vu.device_info(), eventfds(1))
    case("read-16-fds", vu.REGION_READ, vu.region_access(BAR0, 0, 4), eventfds(16))
    case("write-fd", vu.REGION_WRITE, one_byte, eventfds(1))
    case("map-2-fds", vu.DMA_MAP, vu.dma_map(0, PAGE), eventfds(2))
    case("fds-17", vu.DEVICE_SET_IRQS, vectors, eventfds(17))
    case("fds-253", vu.DEVICE_SET_IRQS, vectors, eventfds(253))
    case("fds-253-command-77", 77, fds=eventfds(253))
    case("fds-253-type-3", vu.DEVICE_RESET, fds=eventfds(253), flags=3)


def lengths():
    case("read-15-bytes", vu.REGION_READ, zeros(15))
    case("read-20-bytes", vu.REGION_READ, zeros(20))
    case("write-15-bytes", vu.REGION_WRITE, zeros(15))
    case("write-data-short", vu.REGION_WRITE, vu.region_access(BAR0, 0, 4, zeros(3)))
    case("write-data-long", vu.REGION_WRITE, vu.region_access(BAR0, 0, 4, zeros(5)))
    case("multi-7-bytes", vu.REGION_WRITE_MULTI, zeros(7))
    case("multi-missing", vu.REGION_WRITE_MULTI, vu.write_multi([], count=2) + zeros(24))
    case("multi-cut", vu.REGION_WRITE_MULTI, vu.write_multi([], count=1) + zeros(16))
    case("multi-wrap", vu.REGION_WRITE_MULTI, vu.write_multi([], count=1 << 61))
    case("irqs-19-bytes", vu.DEVICE_SET_IRQS, zeros(19))


def accesses():
    def read(name, region, offset, count):
        case(name, vu.REGION_READ, vu.region_access(region, offset, count))

    def write(name, region, offset, count):
        case(name, vu.REGION_WRITE, vu.region_access(region, offset, count, zeros(count)))

    read("read-index-9", 9, 0, 4)
    read("read-index-max", 0xFFFFFFFF, 0, 4)
    read("read-no-region", ROM, 0, 4)
    read("read-across-end", BAR1, 4093, 4)
    read("read-behind-end", CONFIG, 257, 1)
    read("read-wrap", BAR0, TOP - 2, 4)
    read("read-4097", BAR0, 0, 4097)
    read("read-4-gib", BAR0, 0, 0xFFFFFFFF)
    write("write-no-region", VGA, 0, 1)
    write("write-read-only", BAR3, 0, 1)
    write("write-across-end", BAR1, 4095, 2)
    write("write-wrap", BAR1, TOP - 1, 2)
    write("write-4097", BAR0, 0, 4097)


def irq_ranges():
    def irqs(name, index, start, count, flags=NONE_TRIGGER, data=b"", fds=None, argsz=None):
        case(name, vu.DEVICE_SET_IRQS, vu.irq_set(index, start, count, flags, data, argsz=argsz), fds)

    none, boolean = vu.IRQ_DATA_NONE, vu.IRQ_DATA_BOOL
    mask, unmask, trigger = vu.IRQ_ACTION_MASK, vu.IRQ_ACTION_UNMASK, vu.IRQ_ACTION_TRIGGER
    irqs("irqs-no-data-flag", MSIX, 0, 1, trigger)
    irqs("irqs-two-data-flags", MSIX, 0, 1, none | boolean | trigger, zeros(1))
    irqs("irqs-no-action-flag", MSIX, 0, 1, none)
    irqs("irqs-two-action-flags", MSIX, 0, 1, none | mask | unmask)
    irqs("irqs-unknown-flag", MSIX, 0, 1, NONE_TRIGGER | 1 << 6)
    irqs("irqs-index-5", 5, 0, 0)
    irqs("irqs-argsz-19", MSIX, 0, 1, argsz=19)
    irqs("irqs-start-3", MSIX, 3, 1)
    irqs("irqs-count-3", MSIX, 1, 3)
    irqs("irqs-count-wrap", MSIX, 2, 0xFFFFFFFF)
    irqs("irqs-start-wrap", MSIX, 0xFFFFFFFF, 2)
    irqs("irqs-msi-none", MSI, 0, 1)
    irqs("irqs-count-0-start-1", MSIX, 1, 0)
    irqs("irqs-count-0-mask", MSIX, 0, 0, none | mask)
    irqs("irqs-count-0-bool", MSIX, 0, 0, BOOL_TRIGGER)
    irqs("irqs-count-0-eventfd", MSIX, 0, 0, FD_TRIGGER)
    irqs("irqs-bool-missing", MSIX, 0, 2, BOOL_TRIGGER, zeros(1))
    irqs("irqs-bool-too-many", MSIX, 0, 2, BOOL_TRIGGER, zeros(3))
    irqs("irqs-data-none-data", MSIX, 0, 1, data=zeros(1))
    irqs("irqs-bool-fd", MSIX, 0, 1, BOOL_TRIGGER, zeros(1), eventfds(1))
    irqs("irqs-none-fd", MSIX, 0, 1, fds=eventfds(1))
    irqs("irqs-fd-missing", MSIX, 0, 2, FD_TRIGGER, fds=eventfds(1))
    irqs("irqs-fd-too-many", MSIX, 0, 1, FD_TRIGGER, fds=eventfds(2))
    irqs("irqs-mask-err", ERR, 0, 1, none | mask)
    irqs("irqs-unmask-req", REQ, 0, 1, none | unmask)
    irqs("irqs-unmask-eventfd", INTX, 0, 1, vu.IRQ_DATA_EVENTFD | unmask, fds=eventfds(1))
    irqs("irqs-mask-eventfd", MSIX, 0, 1, vu.IRQ_DATA_EVENTFD | mask, fds=eventfds(1))


def memory():
    def dma(name, address=0, size=PAGE, fds=memfd, **fields):
        case(name, vu.DMA_MAP, vu.dma_map(address, size, **fields), fds)

    def unmap(name, address, size, **fields):
        case(name, vu.DMA_UNMAP, vu.dma_unmap(address, size, **fields))

    case("map-31-bytes", vu.DMA_MAP, zeros(31))
    dma("map-argsz-31", fds=None, argsz=31)
    dma("map-no-access", flags=0)
    dma("map-unknown-flag", flags=0x13)
    dma("map-size-0", size=0)
    dma("map-size-2048", size=2048)
    dma("map-address-2048", address=2048)
    dma("map-offset-2048", offset=2048)
    dma("map-wrap", address=TOP - PAGE, size=2 * PAGE)
    dma("map-to-the-end", address=TOP - PAGE)
    dma("map-offset-negative", offset=1 << 63)
    dma("map-offset-wrap", offset=(1 << 63) - PAGE)
    dma("map-mmap-no-fd", fds=None, flags=7)
    dma("map-file-io", flags=11)
    case("unmap-23-bytes", vu.DMA_UNMAP, zeros(23))
    unmap("unmap-bitmap", 0, PAGE, flags=1)
    unmap("unmap-argsz-0", 0, 0, argsz=0)
    unmap("unmap-unknown", PAGE, PAGE)
    unmap("unmap-all-address", PAGE, 0, flags=2)
    unmap("unmap-all-size", 0, PAGE, flags=2)


def handshake():
    def data(name, text, major=0, **rest):
        case(name, vu.VERSION, vu.version(major=major, text=text), **rest)

    empty = b"{}\0"
    case("first-info", vu.DEVICE_GET_INFO, zeros(16))
    case("first-command-4711", 4711)
    case("first-reply", vu.VERSION, zeros(4), flags=vu.TYPE_REPLY)
    case("first-size-8", vu.VERSION, zeros(4), size=8)
    case("version-0-bytes", vu.VERSION)
    case("version-3-bytes", vu.VERSION, zeros(3))
    case("version-4101-bytes", vu.VERSION, zeros(4101))
    data("version-fd", empty, fds=eventfds(1))
    data("version-flag", empty, flags=1 << 9)
    data("version-no-reply", empty, flags=vu.NO_REPLY)
    data("version-major-1", empty, major=1)
    data("version-no-nul", b"{}")
    data("version-empty-string", b"\0")
    data("version-brace", b"{\0")
    data("version-array", b"[]\0")
    data("version-capabilities-string", b'{"capabilities":"23"}\0')
    data("version-word-for-number", b'{"capabilities":{"max_msg_fds":"foo"}}\0')
    data("version-negative", b'{"capabilities":{"max_msg_fds":-1}}\0')
    data("version-30-digits", b'{"capabilities":{"max_dma_maps":' + b"9" * 30 + b"}}\0")
    data("version-number-for-bool", b'{"capabilities":{"write_multiple":1}}\0')
    data("version-twin-number", b'{"capabilities":{"twin_socket":1}}\0')
    data("version-pgsizes-64k", b'{"capabilities":{"pgsizes":65536}}\0')
    data("version-deep", b"[" * 2000 + b"\0")


for chapter in (framing, commands, queries, files, lengths, accesses, irq_ranges, memory, handshake):
    chapter()


def errno_named(name):
    """The number of an errno on Linux."""
    return getattr(errno, name)

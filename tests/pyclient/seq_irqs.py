# SPDX-License-Identifier: Apache-2.0
"""Rows of sequences.tsv about interrupts and DEVICE_RESET."""

import os
import struct

import vfio_user as vu
from cases import BAR0, BAR1, BAR2, BOOL_TRIGGER, CONFIG, ERR, FD_TRIGGER, INTX, MSI, MSIX, NONE_TRIGGER, REQ
from turn import MAPPINGS, RAISE, RESETS, WRITES, each, expect, plays


@plays("irqs-assign")
def _(turn):
    fds = turn.eventfds(1)
    turn.answer(turn.assign(MSIX, 0, fds))
    turn.fire(MSIX, 0)
    turn.counts(fds, 1)


@plays("irqs-assign-3")
def _(turn):
    fds = turn.eventfds(3)
    turn.answer(turn.assign(MSIX, 0, fds))
    for vector in (2, 2, 0):
        turn.fire(MSIX, vector)
    turn.counts(fds, 1, 0, 2)


@each({
    "irqs-trigger": (1, 2, NONE_TRIGGER, b"", (0, 1, 1)),
    "irqs-trigger-bool": (0, 3, BOOL_TRIGGER, b"\1\0\1", (1, 0, 1)),
})
def _(turn, start, count, flags, data, want):
    fds = turn.eventfds(3)
    turn.assign(MSIX, 0, fds)
    turn.answer(turn.call(vu.DEVICE_SET_IRQS, vu.irq_set(MSIX, start, count, flags, data)))
    turn.counts(fds, *want)


@plays("irqs-latched")
def _(turn):
    fds = turn.eventfds(1)
    for _ in range(5):
        turn.fire(MSIX, 0)
    turn.answer(turn.assign(MSIX, 0, fds))
    turn.counts(fds, 1)


@plays("irqs-latched-once")
def _(turn):
    fds = turn.eventfds(2)
    turn.fire(MSIX, 0)
    turn.assign(MSIX, 0, fds[:1])
    turn.answer(turn.assign(MSIX, 0, fds[1:]))
    turn.counts(fds, 1, 0)


@plays("irqs-replaced")
def _(turn):
    fds = turn.eventfds(2)
    turn.assign(MSIX, 0, fds[:1])
    turn.answer(turn.assign(MSIX, 0, fds[1:]))
    turn.fire(MSIX, 0)
    turn.counts(fds, 0, 1)


@plays("irqs-taken-away")
def _(turn):
    fds = turn.eventfds(2)
    turn.assign(MSIX, 0, fds[:1])
    turn.answer(turn.take_away(MSIX, 0, 1))
    turn.fire(MSIX, 0)
    turn.assign(MSIX, 0, fds[1:])
    turn.counts(fds, 0, 1)


@plays("irqs-disabled")
def _(turn):
    fds = turn.eventfds(3)
    turn.assign(MSIX, 0, fds)
    turn.answer(turn.disable(MSIX))
    for vector in range(3):
        turn.fire(MSIX, vector)
    turn.counts(fds, 0, 0, 0)
    turn.kept = False  # disabling takes the eventfds away


@plays("irqs-disable-msi")
def _(turn):
    turn.answer(turn.disable(MSI))


@plays("irqs-masked")
def _(turn):
    fds = turn.eventfds(1)
    turn.assign(MSIX, 0, fds)
    turn.mask(MSIX, 0, 1)
    turn.fire(MSIX, 0)
    turn.fire(MSIX, 0)
    turn.counts(fds, 0)
    turn.answer(turn.unmask(MSIX, 0, 1))
    turn.counts(fds, 1)


@plays("irqs-masked-bool")
def _(turn):
    fds = turn.eventfds(3)
    turn.assign(MSIX, 0, fds)
    turn.mask(MSIX, 0, 3, [0, 1, 0])
    for vector in range(3):
        turn.fire(MSIX, vector)
    turn.counts(fds, 1, 0, 1)
    turn.answer(turn.unmask(MSIX, 0, 3, [0, 1, 0]))
    turn.counts(fds, 1, 1, 1)


@plays("irqs-masked-replaced")
def _(turn):
    fds = turn.eventfds(2)
    turn.assign(MSIX, 0, fds[:1])
    turn.mask(MSIX, 0, 1)
    turn.fire(MSIX, 0)
    turn.assign(MSIX, 0, fds[1:])
    turn.counts(fds, 0, 0)
    turn.answer(turn.unmask(MSIX, 0, 1))
    turn.counts(fds, 0, 1)


@plays("irqs-intx")
def _(turn):
    fds = turn.eventfds(1)
    turn.assign(INTX, 0, fds)
    turn.fire(INTX)
    turn.fire(INTX)
    turn.counts(fds, 1)
    turn.unmask(INTX, 0, 1)
    turn.counts(fds, 2)
    turn.answer(turn.unmask(INTX, 0, 1))
    turn.counts(fds, 2)


@plays("irqs-disable-unmasks")
def _(turn):
    fds = turn.eventfds(1)
    turn.assign(INTX, 0, fds)
    turn.fire(INTX)
    turn.disable(INTX)
    turn.assign(INTX, 0, fds)
    turn.answer(turn.fire(INTX))
    turn.counts(fds, 2)


@each({"irqs-err": (ERR,), "irqs-req": (REQ,)})
def _(turn, index):
    fds = turn.eventfds(1)
    turn.assign(index, 0, fds)
    turn.fire(index)
    turn.disable(index)
    turn.answer(turn.fire(index))
    turn.counts(fds, 1)
    turn.kept = False  # disabling takes the eventfd away


@plays("irqs-qemu")
def _(turn):
    fds = turn.eventfds(3)
    turn.assign(MSIX, 0, fds[:1])
    turn.take_away(MSIX, 0, 1)
    turn.fire(MSIX, 0)
    turn.disable(MSIX)
    turn.fire(MSIX, 1)
    turn.answer(turn.assign(MSIX, 0, fds))
    turn.counts(fds, 1, 1, 0)


@plays("irqs-churn")
def _(turn):
    fds = turn.eventfds(1)
    fire = vu.region_access(BAR1, RAISE, 4, struct.pack("<I", MSIX << 16))
    for times in range(1, 301):
        turn.take_away(MSIX, 0, 1)
        turn.post(vu.REGION_WRITE, fire)
        turn.answer(turn.assign(MSIX, 0, fds))
        turn.counts(fds, times, settle=0)
    turn.counts(fds, 300)


@plays("irqs-memfd")
def _(turn):
    fds = turn.eventfds(1)
    turn.answer(turn.call(vu.DEVICE_SET_IRQS, vu.irq_set(MSIX, 0, 2, FD_TRIGGER), fds + turn.memfd()))
    turn.fire(MSIX, 0)
    turn.counts(fds, 0)


@plays("irqs-pipe")
def _(turn):
    _, writing = turn.keep(*os.pipe2(os.O_CLOEXEC))
    turn.answer(turn.call(vu.DEVICE_SET_IRQS, vu.irq_set(MSIX, 0, 1, FD_TRIGGER), [writing]))


@plays("irqs-raise-unknown")
def _(turn):
    turn.write(BAR1, RAISE, struct.pack("<I", 0x20003))
    turn.answer(turn.write(BAR1, RAISE, struct.pack("<I", 0xFFFFFFFF)))
    # Nothing: no vector there is has latched an interrupt.
    for index, vectors in {INTX: 1, MSIX: 3, ERR: 1, REQ: 1}.items():
        fds = turn.eventfds(vectors)
        turn.assign(index, 0, fds)
        turn.counts(fds, *[0] * vectors)


def reset(turn):
    return turn.do(vu.DEVICE_RESET)


@plays("reset")
def _(turn):
    reply = turn.answer(reset(turn))
    turn.then("payload", reply.payload, b"")
    turn.then("resets", turn.register(RESETS), 1)


@plays("reset-twice")
def _(turn):
    reset(turn)
    turn.answer(reset(turn))
    turn.then("resets", turn.register(RESETS), 2)


@plays("reset-posted")
def _(turn):
    turn.post(vu.DEVICE_RESET)
    turn.unanswered()
    turn.then("resets", turn.register(RESETS), 1)


@plays("reset-memory")
def _(turn):
    regions = (BAR0, BAR2, CONFIG)
    for region in regions:
        turn.write(region, 0, b"\x09")
        expect("what was written", turn.read(region, 0, 1), b"\x09")
    turn.answer(reset(turn))
    turn.then("bytes after the reset", [turn.read(region, 0, 1) for region in regions], [b"\0"] * 3)
    turn.then("writes", turn.register(WRITES), 0)


@plays("reset-between-writes")
def _(turn):
    write = vu.frame(vu.REGION_WRITE, vu.region_access(BAR0, 0, 1, b"w"), flags=vu.NO_REPLY, msg_id=500)
    turn.client.send(write + vu.frame(vu.DEVICE_RESET, msg_id=501) + write)
    turn.answer(turn.receive(501, vu.DEVICE_RESET))
    turn.then("writes", turn.register(WRITES), 1)


@plays("reset-mappings")
def _(turn):
    expect("a mapping is refused", turn.map(0x1000, 0x1000).failed, False)
    turn.answer(reset(turn))
    turn.then("mappings", turn.register(MAPPINGS), 1)
    turn.then("its unmapping is refused", turn.unmap(0x1000, 0x1000).failed, False)


@plays("reset-eventfds")
def _(turn):
    fds = turn.eventfds(1)
    turn.assign(MSIX, 0, fds)
    turn.answer(reset(turn))
    turn.fire(MSIX, 0)
    turn.counts(fds, 1)


@plays("reset-latch")
def _(turn):
    fds = turn.eventfds(1)
    turn.fire(MSIX, 0)
    turn.answer(reset(turn))
    turn.assign(MSIX, 0, fds)
    turn.counts(fds, 0)


@plays("reset-masked")
def _(turn):
    fds = turn.eventfds(1)
    turn.assign(MSIX, 0, fds)
    turn.mask(MSIX, 0, 1)
    turn.fire(MSIX, 0)
    turn.answer(reset(turn))
    turn.fire(MSIX, 0)
    turn.counts(fds, 0)
    turn.unmask(MSIX, 0, 1)
    turn.counts(fds, 1)

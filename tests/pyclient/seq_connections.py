# SPDX-License-Identifier: Apache-2.0
"""Rows of sequences.tsv about connections: a second client, losses, silence, and how messages come in pieces."""

import socket
import struct
import time

import vfio_user as vu
from cases import BAR0, BAR3, FD_TRIGGER, MSIX, PAGE, eventfds
from server import QEMU_VERSION
from turn import data_of, each, expect, plays

# Seconds after which the server gives a client up, and how much later that may be noticed.
GIVES_UP, LATE = 1.0, 4.0

ASSIGN = (vu.DEVICE_SET_IRQS, vu.irq_set(MSIX, 0, 1, FD_TRIGGER))
READ_4096 = (vu.REGION_READ, vu.region_access(BAR3, 0, 4096))


def leave(turn):
    """Closes the connection of the row."""
    turn.client.close()
    turn.gone = True


@plays("second-client")
def _(turn):
    with turn.server.connect() as second:
        turn.then("what the second client reads", second.end(), "end of file")
    turn.unanswered()
    turn.moved(busy=1)


@plays("second-client-version")
def _(turn):
    with turn.server.connect() as second:
        try:
            second.send(vu.frame(vu.VERSION, vu.version(text=QEMU_VERSION)))
        except vu.Closed:
            pass  # it may be turned away before it has said anything
        turn.then("what the second client reads", second.end() in ("end of file", "reset"), True)
    turn.unanswered()
    turn.moved(busy=1)


@plays("reconnect")
def _(turn):
    turn.connections = 21
    for _ in range(20):
        turn.client.close()
        turn.client = turn.server.open()
        turn.answer(turn.client.opening)
        turn.do(vu.DEVICE_GET_INFO, vu.device_info())
    turn.moved(busy=0, connected=21)


@plays("loss-at-every-byte")
def _(turn):
    version = vu.frame(vu.VERSION, vu.version(text=b"{}\0"))
    rest = vu.frame(*ASSIGN) + vu.frame(vu.DEVICE_RESET)
    expect("lengths of the messages", (len(version), len(rest)), (23, 36 + 16))
    leave(turn)
    fds = turn.keep(*eventfds(1)())
    for n in range(len(version) + len(rest) + 1):
        with turn.server.connect() as lost:
            lost.send(version[:n])
            if n > len(version):
                lost.send(rest[: n - len(version)], fds)
        with turn.server.open() as following:
            turn.answer(following.opening)
            reply = following.call(vu.DEVICE_GET_INFO, vu.device_info())
            turn.then("the next client is refused", reply.failed, False)
    # One connection for each number of bytes and one after each, and the row's own, which said nothing.
    turn.connections = 2 * 76 + 1
    turn.moved(connected=76 + 76 - len(version))


@plays("loss-with-answers-unread")
def _(turn):
    turn.client.send(vu.frame(*READ_4096) * 20)
    leave(turn)
    turn.unanswered()


@plays("loss-with-everything")
def _(turn):
    fds, file = turn.eventfds(3), turn.memfd(16 * PAGE)
    turn.assign(MSIX, 0, fds)
    for n in range(16):
        expect("a mapping is refused", turn.map(n * PAGE, PAGE, file, offset=n * PAGE).failed, False)
    leave(turn)
    turn.unanswered()
    turn.counts(fds, 0, 0, 0)


@plays("loss-half-closed")
def _(turn):
    turn.client.send(vu.frame(vu.VERSION, vu.version(text=QEMU_VERSION)))
    turn.client.sock.shutdown(socket.SHUT_WR)
    turn.answer(turn.receive(1, vu.VERSION))
    turn.then("what is read then", turn.client.end(), "end of file")
    turn.ended = True


@each({"silent": (b"",), "silent-half-header": (bytes(8),)})
def _(turn, data):
    begin = time.monotonic()
    turn.client.send(data)
    turn.unanswered()
    turn.ended = turn.client.silent_end()
    seconds = time.monotonic() - begin
    turn.then(f"closed after {seconds:.2f} s", GIVES_UP * 0.9 < seconds < GIVES_UP + LATE, True)
    turn.moved(handshake=1)


@plays("idle")
def _(turn):
    turn.answer(turn.client.opening)
    turn.then("something is said in 1.5 s", turn.client.silent(1.5), True)


@plays("slow")
def _(turn):
    turn.unanswered()
    turn.client.sock.settimeout(GIVES_UP + LATE)
    deadline, closed = time.monotonic() + 5, False
    while not closed and time.monotonic() < deadline:
        try:
            turn.client.send(vu.frame(*READ_4096) * 16)
        except vu.Closed:
            closed = True
    turn.then("a write fails within 5 s", closed, True)
    leave(turn)
    turn.moved(slow=1)


@plays("pipelined")
def _(turn):
    turn.client.send(b"".join(vu.frame(vu.REGION_READ, vu.region_access(BAR3, n, 1), msg_id=1000 + n) for n in range(100)))
    for n in range(100):
        reply = turn.answer(turn.receive(1000 + n, vu.REGION_READ))
        turn.then("data", data_of(reply, BAR3, n, 1), bytes([n]))


@plays("same-ids")
def _(turn):
    turn.client.send(vu.frame(vu.DEVICE_GET_INFO, vu.device_info(), msg_id=7) * 10)
    for _ in range(10):
        turn.then("message id", turn.answer(turn.receive(7, vu.DEVICE_GET_INFO)).id, 7)


@plays("single-bytes")
def _(turn):
    message = vu.frame(vu.REGION_WRITE, vu.region_access(BAR0, 0, 1, b"\5"), msg_id=8)
    for at in range(len(message)):
        turn.client.send(message[at : at + 1])
        time.sleep(0.001)
    turn.answer(turn.receive(8, vu.REGION_WRITE))


@plays("largest-message")
def _(turn):
    message = vu.frame(vu.REGION_WRITE_MULTI, vu.write_multi([(0, BAR0, b"12345678")] * 2729), msg_id=9)
    for at in range(0, len(message), 1000):
        turn.client.send(message[at : at + 1000])
    reply = turn.answer(turn.receive(9, vu.REGION_WRITE_MULTI))
    turn.then("wr_cnt", reply.payload, struct.pack("<Q", 2729))


def assign_in_two(turn, first, before=(), after=()):
    """Sends an assignment of MSI-X vector 0 as its first bytes and the rest, each with eventfds, and returns the reply."""
    msg_id = turn.next_id()
    message = vu.frame(*ASSIGN, msg_id=msg_id)
    if first:
        turn.client.send(message[:first], before)
    turn.client.send(message[first:], after)
    return turn.receive(msg_id, vu.DEVICE_SET_IRQS)


@plays("fd-with-any-header-byte")
def _(turn):
    fds = turn.eventfds(1)
    for first in range(16):
        reply = turn.answer(assign_in_two(turn, first, after=fds))
        turn.then("payload", reply.payload, b"")
    turn.kept = True


@each({"fd-with-payload": (16,), "fd-in-payload": (21,)})
def _(turn, first):
    turn.answer(assign_in_two(turn, first, after=turn.eventfds(1)))


@plays("fds-16-and-16")
def _(turn):
    fds = turn.keep(*eventfds(16)())
    turn.answer(assign_in_two(turn, 1, before=fds, after=fds))


@plays("fds-of-own-message")
def _(turn):
    fds = turn.eventfds(1)
    turn.client.send(vu.frame(vu.REGION_WRITE, vu.region_access(BAR0, 0, 1, b"p"), flags=vu.NO_REPLY) * 2)
    turn.answer(turn.assign(MSIX, 0, fds))
    turn.fire(MSIX, 0)
    turn.counts(fds, 1)

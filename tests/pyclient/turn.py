# SPDX-License-Identifier: Apache-2.0
"""One row of a table being played: its connection, the steps that a stimulus is made of, and what a row can promise.

A player of a row gets a Turn. It takes the row's steps, hands the answer that the row is about to answer() (or says
unanswered()), and compares what the column `then` promises by then() and moved(). The runner looks at the rest.
"""

import os
import struct
import time

import cases
import vfio_user as vu
from cases import BAR1

# Registers in BAR1, see section "The device" of cases.md.
WRITES, DIGEST, MAPPINGS, RESETS, RAISE, REFUSE, PANIC = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x18

# Seconds that an interrupt may take to arrive, and that one too many is waited for.
ARRIVAL, TOO_MANY = 2.0, 0.003

# Commands whose reply has no payload.
BARE = (vu.DMA_MAP, vu.DEVICE_SET_IRQS, vu.DEVICE_RESET)

PLAYERS = {}


def plays(name, *args):
    """Makes a function the player of a row, called with a Turn and the args."""

    def register(player):
        if name in PLAYERS or name in cases.CASES:
            raise ValueError(f"two players are named {name}")
        PLAYERS[name] = lambda turn: player(turn, *args)
        return player

    return register


def each(rows):
    """Makes a function the player of many rows: rows has the function's arguments by the rows' ids."""

    def register(player):
        for name, args in rows.items():
            plays(name, *args)(player)
        return player

    return register


def expect(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def flat(numbers):
    """The server's numbers with those of its objects as disconnected.slow and the like."""
    out = {}
    for key, value in numbers.items():
        if isinstance(value, dict):
            out.update({f"{key}.{name}": count for name, count in value.items()})
        else:
            out[key] = value
    return out


class Turn:
    def __init__(self, server, row):
        self.server, self.row = server, row
        self.before = server.numbers()
        self.answered = self.promised = False
        self.kept = False  # whether the server holds eventfds or mappings of this client
        self.gone = False  # whether the case has ended its connection
        self.ended = False  # whether the server was seen to end it
        self.panics, self.connections = 0, 1  # how many panics and connections a row has
        self.files, self.totals, self.last_id = [], {}, 0
        self.client = server.open() if row["state"] == "open" else server.connect()
        # On a new connection the server waits for a VERSION, and not for long: nothing may come between.
        self.attached = server.numbers() if row["state"] == "open" else None

    def close(self):
        self.client.close()
        for fd in self.files:
            os.close(fd)
        self.files = []

    # What a row promises.

    def answer(self, reply):
        """Compares a reply with the row's answer."""
        self.answered = True
        want = self.row["answer"]
        if want == "success":
            if reply.failed:
                raise AssertionError(f"refused: {reply}")
        elif want == "none":
            raise AssertionError(f"answered: {reply}")
        else:
            if not reply.failed or reply.error != cases.errno_named(want):
                raise AssertionError(f"want {want}, got {reply}")
            if reply.size != vu.HEADER.size or reply.fds:
                raise AssertionError(f"an error reply is a header alone, got {reply} and {len(reply.fds)} files")
        return reply

    def unanswered(self):
        """Says that no answer is waited for. One that comes later would be taken for the one to the next message."""
        self.answered = True
        expect("the row's answer", self.row["answer"], "none")

    def then(self, what, got, want):
        self.promised = True
        expect(what, got, want)

    def moved(self, **want):
        """Waits until these numbers of the server have moved by so much since the row began; panic=1 means
        disconnected.panic."""
        self.promised = True
        names = {key if key in self.before else f"disconnected.{key}": by for key, by in want.items()}
        before = flat(self.before)

        def complaint(now):
            now = flat(now)
            got = {name: now.get(name, 0) - before.get(name, 0) for name in names}
            return "" if got == names else f"numbers moved: {got}, want {names}"

        self.server.settled(complaint)

    # Messages.

    def next_id(self):
        self.last_id += 1
        return self.last_id

    def call(self, command, payload=b"", fds=(), **header):
        """Sends a command and returns the reply."""
        reply = self.client.call(command, payload, fds=fds, msg_id=self.next_id(), **header)
        if not reply.failed and command in BARE:
            expect("payload of a reply that has none", reply.payload, b"")
            self.kept = self.kept or command == vu.DMA_MAP or bool(fds)
        return reply

    def do(self, *args, **rest):
        """Takes a step that has to succeed."""
        reply = self.call(*args, **rest)
        if reply.failed:
            raise AssertionError(f"refused: {reply}")
        return reply

    def post(self, command, payload=b""):
        self.client.send(vu.frame(command, payload, msg_id=self.next_id(), flags=vu.NO_REPLY))

    def receive(self, msg_id, command):
        """The next message, which has to be the reply to this one."""
        reply = self.client.receive()
        expect("reply", (reply.id, reply.command, reply.flags & vu.TYPE_MASK), (msg_id, command, vu.TYPE_REPLY))
        return reply

    def read(self, region, offset, count):
        return data_of(self.do(vu.REGION_READ, vu.region_access(region, offset, count)), region, offset, count)

    def write(self, region, offset, data):
        reply = self.do(vu.REGION_WRITE, vu.region_access(region, offset, len(data), data))
        expect("echo of a write", reply.payload, vu.region_access(region, offset, len(data)))
        return reply

    def register(self, offset):
        return struct.unpack("<I", self.read(BAR1, offset, 4))[0]

    def map(self, address, size, fds=(), **fields):
        return self.call(vu.DMA_MAP, vu.dma_map(address, size, **fields), fds)

    def unmap(self, address, size, **fields):
        return self.call(vu.DMA_UNMAP, vu.dma_unmap(address, size, **fields))

    # Interrupts.

    def fire(self, index, vector=0):
        """Has the device raise an interrupt."""
        return self.write(BAR1, RAISE, struct.pack("<I", index << 16 | vector))

    def assign(self, index, start, fds):
        """Assigns eventfds to as many vectors."""
        return self.do(vu.DEVICE_SET_IRQS, vu.irq_set(index, start, len(fds), cases.FD_TRIGGER), fds)

    def take_away(self, index, start, count):
        """Takes the eventfds away from vectors."""
        return self.do(vu.DEVICE_SET_IRQS, vu.irq_set(index, start, count, cases.FD_TRIGGER))

    def disable(self, index):
        return self.do(vu.DEVICE_SET_IRQS, vu.irq_set(index, 0, 0, cases.NONE_TRIGGER))

    def act(self, action, index, start, count, booleans=None):
        """An action of SET_IRQS on vectors, or on those whose boolean is 1."""
        data, flag = (b"", vu.IRQ_DATA_NONE) if booleans is None else (bytes(booleans), vu.IRQ_DATA_BOOL)
        return self.do(vu.DEVICE_SET_IRQS, vu.irq_set(index, start, count, flag | action, data))

    def mask(self, *args):
        return self.act(vu.IRQ_ACTION_MASK, *args)

    def unmask(self, *args):
        return self.act(vu.IRQ_ACTION_UNMASK, *args)

    # Files, closed when the turn is over.

    def keep(self, *fds):
        self.files += fds
        return list(fds)

    def eventfds(self, count):
        """count different eventfds."""
        return self.keep(*(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(count)))

    def memfd(self, size=cases.PAGE):
        fd = os.memfd_create("memory", os.MFD_CLOEXEC)
        os.truncate(fd, size)
        return self.keep(fd)

    def counts(self, fds, *want, settle=TOO_MANY):
        """Compares how often eventfds were signalled in all, once what is wanted has arrived and a moment later."""
        deadline = time.monotonic() + ARRIVAL
        while self._totals(fds) != list(want) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(settle)
        self.then("counts of the eventfds", self._totals(fds), list(want))

    def _totals(self, fds):
        for fd in fds:
            self.totals.setdefault(fd, 0)
            try:
                self.totals[fd] += os.eventfd_read(fd)
            except BlockingIOError:
                pass
        return [self.totals[fd] for fd in fds]


def data_of(reply, region, offset, count):
    """The data of a reply to a REGION_READ, whose fields have to be those of the request."""
    expect("fields of a read", reply.payload[:16], vu.region_access(region, offset, count))
    expect("length of what was read", len(reply.payload), 16 + count)
    return reply.payload[16:]

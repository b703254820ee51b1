# SPDX-License-Identifier: Apache-2.0
"""Plays vfiouser/testdata/cases.tsv or sequences.tsv against a server. Usage: run.py TABLE SERVER

TABLE is one of the tables, by its file name; SERVER the program that vfiouser/testdata/cases.md describes. With
sequences.tsv come the stories that no row tells. The last line says how many passed; the exit status is 0 if all did.
"""

import contextlib
import csv
import os
import select
import sys
import tempfile
import traceback

import cases
import seq_connections  # noqa: F401  these four register the players of their rows
import seq_irqs  # noqa: F401
import seq_memory  # noqa: F401
import seq_served  # noqa: F401
import stories
import vfio_user as vu
from server import Server, moved
from turn import PLAYERS, Turn, expect

# Seconds in which the server closes a connection that the row says it closes.
HANGS_UP = 4.0


def frame_player(make):
    """The player of a row of cases.tsv: one frame, and its answer."""

    def player(turn):
        data, fds = make()
        turn.keep(*fds)
        try:
            turn.client.send(data, fds)
        except vu.Closed:
            pass  # a server may hang up before it has read all of it
        if turn.row["answer"] == "none":
            turn.unanswered()
        else:
            turn.answer(turn.client.receive())

    return player


TABLES = {
    "cases.tsv": ({name: frame_player(make) for name, make in cases.CASES.items()}, []),
    "sequences.tsv": (PLAYERS, stories.STORIES),
}


def connection_after(turn):
    """Compares what has become of the connection with the row, and returns why the server counts it as ended."""
    want = turn.row["connection"]
    expect("the case has ended its connection itself", turn.gone, want == "-")
    if want == "open":
        expect("the server has closed the connection", turn.ended, False)
        if turn.call(vu.DEVICE_GET_INFO, vu.device_info()).failed:
            raise AssertionError("DEVICE_GET_INFO failed afterwards")
        return "client_closed"
    if want == "closed" and not turn.ended:
        if not select.select([turn.client.sock], [], [], HANGS_UP)[0]:
            raise AssertionError(f"the connection was not closed within {HANGS_UP} s")
        expect("the connection is closed without another word", turn.client.silent_end(), True)
        return "protocol"
    return None


def play(server, row, player):
    """Plays one row and compares the server's numbers before and after."""
    turn = Turn(server, row)
    try:
        player(turn)
        expect("the player has looked for an answer", turn.answered, True)
        expect("the player has compared what `then` says", turn.promised, row["then"] != "-")
        ended = connection_after(turn)
        if row["state"] == "open" and row["connection"] == "open" and not turn.kept:
            same(server, turn.attached, "while the client was attached", turn.connections - 1)
    except Exception:
        turn.close()
        with contextlib.suppress(AssertionError):  # or the next row would see the end of this one's connection
            same(server, turn.before, "after a failure", turn.connections)
        raise
    turn.close()
    after = same(server, turn.before, "after the client had gone", turn.connections)
    expect("counters moved", moved(turn.before["refused"], after["refused"]), {} if row["counter"] == "-" else {row["counter"]: 1})
    expect("panics", after["panics"] - turn.before["panics"], turn.panics)
    if ended:
        expect("ends of connections", moved(turn.before["disconnected"], after["disconnected"]), {ended: turn.connections})


def same(server, before, when, ends=0):
    """Waits until the server has the files and goroutines of before, and so many connections more have ended."""

    def what(numbers):
        return {"fds": numbers["fds"], "goroutines": numbers["goroutines"], "ends": sum(numbers["disconnected"].values())}

    want = what(before)
    want["ends"] += ends

    def agree(now):
        return "" if what(now) == want else f"{when} {what(now)}, want {want}"

    return server.settled(agree)


def table(path, players):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    ids = [row["id"] for row in rows]
    if len(set(ids)) != len(ids) or not ids:
        raise SystemExit(f"{path}: no rows, or an id twice")
    unknown = sorted(set(ids) ^ set(players))
    if unknown:
        raise SystemExit(f"{path} and the players differ in: {' '.join(unknown)}")
    return rows


def attempt(name, do, failures):
    try:
        do()
    except Exception as cause:
        failures.append(name)
        print(f"FAIL {name}: {type(cause).__name__}: {cause}")
        traceback.print_exc(limit=-2)


def main(path, program):
    players, tales = TABLES[os.path.basename(path)]
    rows = table(path, players)
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        server = Server(program, os.path.join(folder, "socket"))
        for row in rows:
            attempt(row["id"], lambda: play(server, row, players[row["id"]]), failures)
        for story in tales:
            before = server.numbers()

            def tell():
                story(server)
                same(server, before, "after the story", 1)

            attempt(story.__name__, tell, failures)
        server.stop()
    total = len(rows) + len(tales)
    print(f"{total - len(failures)} of {total} passed: {len(rows)} rows, {len(tales)} stories")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

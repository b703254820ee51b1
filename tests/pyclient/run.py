# SPDX-License-Identifier: Apache-2.0
"""Plays vfiouser/testdata/cases.tsv, and then some stories, against a server. Usage: run.py TABLE SERVER

TABLE is the table of cases, SERVER the program that vfiouser/testdata/cases.md describes. The last line says how many
passed; the exit status is 0 if all did.
"""

import csv
import os
import sys
import tempfile
import traceback

import cases
import stories
import vfio_user as vu
from server import Server, moved


def answer_of(client, row):
    """Checks what the server says to the stimulus of a row."""
    if row["answer"] == "none":
        # A closed connection is looked at below; on an open one silence is all there is.
        if row["connection"] == "open" and not client.silent():
            raise AssertionError(f"answered: {client.receive()}")
        return
    reply = client.receive()
    if row["answer"] == "success":
        if reply.failed:
            raise AssertionError(f"refused: {reply}")
        return
    if not reply.failed or reply.error != cases.errno_named(row["answer"]):
        raise AssertionError(f"want {row['answer']}, got {reply}")
    if reply.size != vu.HEADER.size or reply.fds:
        raise AssertionError(f"an error reply is a header alone, got {reply} and {len(reply.fds)} files")


def connection_after(client, row):
    if row["connection"] == "open":
        if client.call(vu.DEVICE_GET_INFO, vu.device_info(), msg_id=77).failed:
            raise AssertionError("DEVICE_GET_INFO failed afterwards")
    elif not client.silent_end():
        raise AssertionError("the connection was not closed, or something was said before")


def play(server, row):
    """Plays one row and compares the server's numbers before and after."""
    if row["then"] != "-":
        raise AssertionError("the row promises more than this client can check")
    data, fds = cases.CASES[row["id"]]()
    before = server.numbers()
    try:
        with server.open() if row["state"] == "open" else server.connect() as client:
            attached = server.numbers()
            try:
                client.send(data, fds)
            except vu.Closed:
                pass  # a server may hang up before it has read all of it
            answer_of(client, row)
            connection_after(client, row)
            if row["state"] == "open" and row["connection"] == "open":
                same(server, attached, "while the client was attached")
    finally:
        for fd in fds:
            os.close(fd)
    after = same(server, before, "after the client had gone")
    want = {} if row["counter"] == "-" else {row["counter"]: 1}
    if moved(before["refused"], after["refused"]) != want:
        raise AssertionError(f"counters moved: {moved(before['refused'], after['refused'])}, want {want}")
    if after["panics"] != before["panics"]:
        raise AssertionError("the device panicked")


def same(server, before, when):
    def agree(now):
        if (now["fds"], now["goroutines"]) == (before["fds"], before["goroutines"]):
            return ""
        return f"{when} {now['fds']} fds and {now['goroutines']} goroutines, before {before['fds']} and {before['goroutines']}"

    return server.settled(agree)


def table(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    ids = [row["id"] for row in rows]
    if len(set(ids)) != len(ids) or not ids:
        raise SystemExit(f"{path}: no rows, or an id twice")
    unknown = sorted(set(ids) ^ set(cases.CASES))
    if unknown:
        raise SystemExit(f"{path} and cases.py differ in: {' '.join(unknown)}")
    return rows


def attempt(name, do, failures):
    try:
        do()
    except Exception as cause:
        failures.append(name)
        print(f"FAIL {name}: {type(cause).__name__}: {cause}")
        traceback.print_exc(limit=-2)


def main(path, program):
    rows = table(path)
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        server = Server(program, os.path.join(folder, "socket"))
        for row in rows:
            attempt(row["id"], lambda: play(server, row), failures)
        for story in stories.STORIES:
            before = server.numbers()

            def tell():
                story(server)
                same(server, before, "after the story")

            attempt(story.__name__, tell, failures)
        server.stop()
    total = len(rows) + len(stories.STORIES)
    print(f"{total - len(failures)} of {total} passed: {len(rows)} cases, {len(stories.STORIES)} stories")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

# SPDX-License-Identifier: Apache-2.0
"""What no row of the tables says of the device of vfiouser/testdata/cases.md, used as its page promises."""

import mmap
import struct

import vfio_user as vu
from cases import BAR0, BAR2, CONFIG, PAGE
from turn import expect

STORIES = []


def story(tell):
    STORIES.append(tell)
    return tell


def call(client, command, payload):
    reply = client.call(command, payload)
    if reply.failed:
        raise AssertionError(f"refused: {reply}")
    return reply


@story
def what_is_written_on_the_socket_is_seen_in_both_mapped_areas(server):
    with server.open() as client:
        reply = call(client, vu.DEVICE_GET_REGION_INFO, vu.region_info(BAR2, argsz=80))
        for offset in (0x1004, 0x2FF0):
            call(client, vu.REGION_WRITE, vu.region_access(BAR2, offset, 15, b"from the socket"))
            area = offset // PAGE * PAGE
            with mmap.mmap(reply.fds[0], PAGE, offset=area) as memory:
                expect("mapped bytes", memory[offset - area : offset - area + 15], b"from the socket")


@story
def writes_to_three_regions_in_one_message_reach_each(server):
    entries = [(n * 8, region, bytes([n + 1]) * 8) for n, region in enumerate((BAR0, BAR2, CONFIG))]
    with server.open() as client:
        reply = call(client, vu.REGION_WRITE_MULTI, vu.write_multi(entries))
        expect("writes done", reply.payload, struct.pack("<Q", 3))
        for offset, region, data in entries:
            reply = call(client, vu.REGION_READ, vu.region_access(region, 0, 24))
            expect("bytes", reply.payload[16:], bytes(offset) + data + bytes(16 - offset))

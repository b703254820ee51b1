#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Provokes asynchronous events of queue pairs, completion queues and shared receive queues, and tells what came.

usage: events.py GID

Only the process whose object it is hears of such an event (ibv_get_async_event(3)), so ibv_asyncwatch sees none of them.
Each step prints a line: what was done, and the event that followed or the error of waiting for one.
"""

import signal
import sys

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

LIMIT = 60  # seconds until an event counts as lost
DEPTH = 64
CQE = 16
WRITABLE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


class Side:
    """A queue pair with what it needs."""

    def __init__(self, ctx, pd, srq=False, cqe=4 * DEPTH, access=e.IBV_ACCESS_LOCAL_WRITE):
        self.cq = CQ(ctx, cqe, None, None, 0)
        self.srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=DEPTH))) if srq else None
        self.mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH)
        self.qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, srq=self.srq, cap=cap, sq_sig_all=1))
        self.access = access

    def attributes(self, peer, gid, index):
        attr = QPAttr(port_num=1)
        attr.dest_qp_num, attr.path_mtu = peer.qp.qp_num, e.IBV_MTU_1024
        attr.qp_access_flags = self.access
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=gid, sgid_index=index))
        return attr

    def receive(self, count):
        for i in range(count):
            wr = RecvWR(wr_id=i, sg=[SGE(self.mr.buf, 64, self.mr.lkey)], num_sge=1)
            (self.srq or self.qp).post_recv(wr)

    def send(self, count, opcode=e.IBV_WR_SEND, address=0, key=0):
        for i in range(count):
            wr = SendWR(wr_id=i, opcode=opcode, num_sge=1, sg=[SGE(self.mr.buf, 64, self.mr.lkey)])
            if opcode != e.IBV_WR_SEND:
                wr.set_wr_rdma(key, address)
            self.qp.post_send(wr)

    def fail(self):
        self.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    def close(self):
        for x in (self.qp, self.srq, self.mr, self.cq):
            if x is not None:
                x.close()


def drained(a, b):
    attr = QPAttr(qp_state=e.IBV_QPS_SQD)
    attr.en_sqd_async_notify = 1
    a.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_EN_SQD_ASYNC_NOTIFY)


def established(a, b):
    b.receive(1)
    a.send(1)


def last_wqe(a, b):
    b.fail()


def srq_limit(a, b):
    b.receive(4)
    b.srq.modify(SrqAttr(srq_limit=3), e.IBV_SRQ_LIMIT)
    a.send(2)


def overflow(a, b):
    b.receive(CQE + 8)
    a.send(CQE + 8)


def write(a, b):
    a.send(1, e.IBV_WR_RDMA_WRITE, b.mr.buf, b.mr.rkey)


# What is done, to which kind of sides, and the state of the second one.
STEPS = [
    ("SQD", drained, {}, {}, e.IBV_QPS_RTS),
    ("SEND to RTR", established, {}, {}, e.IBV_QPS_RTR),
    ("ERR with an SRQ", last_wqe, {}, {"srq": True}, e.IBV_QPS_RTS),
    ("SRQ below its limit", srq_limit, {}, {"srq": True}, e.IBV_QPS_RTS),
    ("CQ overflow", overflow, {"cqe": CQE}, {}, e.IBV_QPS_RTS),
    ("WRITE that the queue pair forbids", write, {}, {}, e.IBV_QPS_RTS),
    ("WRITE that the region forbids", write, {}, {"access": WRITABLE}, e.IBV_QPS_RTS),
]


def on_alarm(number, frame):
    raise TimeoutError("no event")


def run(ctx, pd, index, step):
    """Returns the name of the event that a step brings."""
    _, do, left, right, state = step
    a, b = Side(ctx, pd, **left), Side(ctx, pd, **right)
    gid = ctx.query_gid(1, index)
    a.qp.to_rts(a.attributes(b, gid, index))
    attr = b.attributes(a, gid, index)
    (b.qp.to_rts if state == e.IBV_QPS_RTS else b.qp.to_rtr)(attr)
    signal.alarm(LIMIT)
    do(a, b)
    event = ctx.get_async_event()
    signal.alarm(0)
    event.ack()
    a.close()
    b.close()
    return e.ibv_event_type(event.event_type).name


def main():
    signal.signal(signal.SIGALRM, on_alarm)
    ctx = Context(name=get_device_list()[0].name.decode())
    pd = PD(ctx)
    for step in STEPS:
        try:
            print(f"{step[0]}: {run(ctx, pd, int(sys.argv[1]), step)}", flush=True)
        except (TimeoutError, PyverbsError) as err:
            signal.alarm(0)
            print(f"{step[0]}: {err}", flush=True)


main()

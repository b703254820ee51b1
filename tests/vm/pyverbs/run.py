#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs rdma-core's own tests, unmodified, in a guest and writes one JSON object for each test.

usage: run.py LIMIT SEED SKIPS [TEST ...]

The lines go to standard output; what the tests themselves print goes to standard error. LIMIT is how many seconds a test
may take. Each test finds the random numbers that follow
from SEED and its name, whichever tests ran before it. SKIPS is a JSON object: tests that are skipped, and why. Without the name of a TEST (package, module, class or test, as
unittest spells them) all tests run.

A line is {"id", "outcome", "text", "seconds"}; the outcome is pass, skip or fail, the text says why. A first line with
the id "start" names the version of Python, a last line with the id "end" says how many tests there were: a file without
it is of a run that did not come to its end.
"""

import inspect
import json
import multiprocessing
import multiprocessing.context
import multiprocessing.process
import os
import random
import signal
import subprocess
import sys
import time
import traceback
import unittest

SUITE = "/opt/rdma-core-tests/tests"
# How much of a failure is kept, in characters, from its end.
MAX_TEXT = 4000
# How much longer than the suite itself allows things may take: its limits are those of hardware, and of a quiet machine.
SLOW = 6


class Recorder(unittest.TestResult):
    """Writes down how each test ended. The first outcome other than a pass stands."""

    def __init__(self, limit, seed):
        super().__init__()
        self.file = os.dup(1)
        os.dup2(2, 1)
        self.limit, self.seed = limit, seed
        self.outcome, self.text, self.began = "pass", "", 0.0

    def write(self, **line):
        # One system call, nothing buffered: the children that a test forks have nothing to write a second time.
        os.write(self.file, (json.dumps(line) + "\n").encode())

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.text, self.began = "pass", "", time.monotonic()
        random.seed(f"{self.seed} {test.id()}")
        signal.alarm(self.limit)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)
        self.write(id=test.id(), outcome=self.outcome, text=self.text[-MAX_TEXT:],
                   seconds=round(time.monotonic() - self.began, 3))

    def note(self, test, outcome, text):
        if outcome == "fail" or self.outcome == "pass":
            self.outcome, self.text = outcome, text
        if not isinstance(test, unittest.TestCase):
            # What a class or a module needs before its tests: there is no startTest for it.
            self.write(id=test.id(), outcome=outcome, text=text[-MAX_TEXT:], seconds=0)

    def addSkip(self, test, reason):
        self.note(test, "skip", reason)

    def addError(self, test, err):
        self.note(test, "fail", "".join(traceback.format_exception(*err)))

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note(test, "fail", f"{subtest}: " + "".join(traceback.format_exception(*err)))

    def addExpectedFailure(self, test, err):
        self.note(test, "fail", "failed as the test itself expects")

    def addUnexpectedSuccess(self, test):
        self.note(test, "fail", "passed, which the test itself does not expect")


def be_patient(utils):
    """Stretches the time limits of the suite: those of its barriers, of waiting for processes, and of polling."""
    barrier, join = multiprocessing.context.BaseContext.Barrier, multiprocessing.process.BaseProcess.join
    multiprocessing.context.BaseContext.Barrier = (
        lambda self, parties, action=None, timeout=None: barrier(self, parties, action, timeout and SLOW * timeout))
    multiprocessing.process.BaseProcess.join = lambda self, timeout=None: join(self, timeout and SLOW * timeout)
    utils.POLL_CQ_TIMEOUT *= SLOW


def find_interface(base):
    """Has the suite of rdma-core 44 ask the kernel for a port's Ethernet interface, as those since do.

    It looks below the device itself, where that of a device with two functions is not, and skips what needs an address.
    """
    case, known = base.RDMATestCase, {}
    if "port" in inspect.signature(case.get_net_name).parameters:
        return

    def address(self, dev, port, idx):
        if (dev, port) not in known:
            links = json.loads(subprocess.check_output(["rdma", "link", "show", "-j"]))
            names = [link["netdev"] for link in links
                     if (link["ifname"], link["port"]) == (dev, port) and "netdev" in link]
            known[dev, port] = self.get_ip_mac_address(names[0]) if names else (None, None)
        self.args.append([dev, port, idx, *known[dev, port]])
    case._get_ip_mac = address


def each(suite):
    """Yields the tests of a suite."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def skip(test, reason):
    def instead():
        raise unittest.SkipTest(reason)
    setattr(test, test._testMethodName, instead)


def on_alarm(number, frame):
    raise TimeoutError("the test ran into its time limit")


def main():
    limit, seed, skips, names = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4:]
    sys.argv[1:] = []
    # The suite looks for its own modules with and without its package's name, as its run_tests.py arranges it.
    sys.path[:0] = [SUITE, os.path.dirname(SUITE)]
    from args_parser import parser
    parser.parse_args()
    import tests
    import tests.base
    import tests.utils
    be_patient(tests.utils)
    find_interface(tests.base)

    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names) if names else loader.loadTestsFromModule(tests)
    for test in each(suite):
        if test.id() in skips:
            skip(test, skips[test.id()])
    recorder = Recorder(limit, seed)
    recorder.write(id="start", outcome="pass", text=sys.version.split()[0], seconds=0)
    signal.signal(signal.SIGALRM, on_alarm)
    suite.run(recorder)
    recorder.write(id="end", outcome="pass", text=str(recorder.testsRun), seconds=0)
    # A test of rdma_cm that failed may have left a process behind, and Python would wait for it.
    for child in multiprocessing.active_children():
        child.kill()
    sys.stderr.flush()
    os._exit(0)


main()

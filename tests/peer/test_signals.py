"""Signals: heard whenever they come, and never lost between the end of a run and the wait for one."""

import subprocess
import sys

import pytest

LATE = """
import os, signal, threading
from thanos_peer.peer.signals import Signals

signals = Signals()
signals.{before}
os.kill(os.getpid(), signal.SIGTERM)
signals.only_note()
os.kill(os.getpid(), signal.SIGINT)
signals.wait()
print(*map(int, signals.heard))
"""
WAITING = """
import os, signal, threading
from thanos_peer.peer.signals import Signals

signals = Signals()
signals.only_note()
threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGTERM]).start()
signals.wait()
print(*map(int, signals.heard))
"""
SECOND = """
import os, signal
from thanos_peer.peer.signals import Signals

signals = Signals()
signals.listen(print)
os.kill(os.getpid(), signal.SIGINT)
print("still here", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("not any more", flush=True)
"""


def run(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("before", ["listen(lambda number: None)", "only_note()"])
def test_one_that_was_told_before_it_waits_does_not_wait(before):
    done = run(LATE.format(before=before))
    assert (done.returncode, done.stdout) == (0, "15 2\n"), done.stderr


def test_one_that_was_not_told_waits_until_it_is():
    done = run(WAITING)
    assert (done.returncode, done.stdout) == (0, "15\n"), done.stderr


def test_the_first_is_passed_on_and_the_second_ends_the_process():
    done = run(SECOND)
    assert (done.returncode, done.stdout) == (128 + 15, "2\nstill here\n"), done.stderr

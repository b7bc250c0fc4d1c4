"""How a peer shares the cores of its host."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from thanos_peer.peer.scheduling import TURN

OWN = Path("/proc/self/sched")
PROGRAM = """
import os, threading
from pathlib import Path
from thanos_peer.peer import scheduling

go = threading.Event()

def thread():
    made = threading.Thread(target=go.wait, daemon=True)
    made.start()
    return made.native_id

nice = os.getpriority(os.PRIO_PROCESS, 0)
scheduling.prefer_long_turns()
usual, scheduling.TURN = scheduling.TURN, 2_000_000
# To something else first: the process that runs the tests may have long turns already, and pass them on.
scheduling.lengthen_turns()
before = thread()
scheduling.TURN = usual
scheduling.lengthen_turns()
print(os.sched_getscheduler(0) == os.SCHED_BATCH, os.getpriority(os.PRIO_PROCESS, 0) == nice)
for each in (threading.get_native_id(), before, thread()):
    print(Path(f"/proc/self/task/{each}/sched").read_text().partition("se.slice")[2].split()[1])
go.set()
"""


def shows_and_lengthens_turns():
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    is_recent = release is not None and tuple(map(int, release.groups())) >= (6, 12)
    return is_recent and platform.machine() == "x86_64" and OWN.exists() and "se.slice" in OWN.read_text()


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH") or not shows_and_lengthens_turns(), reason="Linux 6.12 does it")
def test_a_peer_is_not_interrupted_and_its_own_thread_has_long_turns():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    said, own, earlier, later = done.stdout.splitlines()
    # The scheduling policy is the one for long turns, and the priority is as before.
    assert said == "True True"
    assert (int(own), int(later)) == (TURN, TURN)
    assert int(earlier) == 2_000_000

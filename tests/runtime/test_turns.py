"""How a peer shares the cores of its host."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from thanos_peer.runtime.turns import TURN

PROGRAM = """
import os, threading
from pathlib import Path
from thanos_peer.runtime.turns import lengthen_turns, prefer_long_turns

def slice_of(thread):
    lines = Path(f"/proc/self/task/{thread}/sched").read_text().splitlines()
    return next((line.split()[-1] for line in lines if line.startswith("se.slice")), "")

os.nice(3)
prefer_long_turns()
go = threading.Event()
other = threading.Thread(target=go.wait, daemon=True)
other.start()
agreed = lengthen_turns()
print(os.sched_getscheduler(0) == os.SCHED_BATCH, os.getpriority(os.PRIO_PROCESS, 0))
print(agreed, slice_of(threading.get_native_id()), slice_of(other.native_id))
go.set()
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has it")
def test_a_peer_is_not_interrupted_and_its_own_thread_has_long_turns():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    (is_batch, nice), (is_agreed, own, others) = (line.split(" ") for line in done.stdout.splitlines())
    assert (is_batch, nice) == ("True", "3")  # nobody is more, or less, important than before
    assert is_agreed == str(platform.machine() in {"x86_64", "aarch64", "riscv64"})
    if "se.slice" not in Path("/proc/self/sched").read_text():
        pytest.skip("this kernel does not show how long a turn is")
    if tuple(map(int, platform.release().split("-")[0].split(".")[:2])) >= (6, 12):
        assert int(own) == TURN
    assert int(others) < TURN

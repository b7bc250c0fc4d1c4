"""How a peer shares the cores of its host: it wants throughput, and says so to Linux.

Who wakes up is not to interrupt who is running, and the thread that reckons is to have long turns. Otherwise, on a
host with more peers than cores, nobody gets to hear more than a message or two at a time, and every turn begins
with caches that another peer has filled.
"""

import contextlib
import ctypes
import os
import platform
import struct
from typing import Final

TURN: Final = 20_000_000  # nanoseconds
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}  # the numbers of the system call
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQII")  # Linux's struct sched_attr


def prefer_long_turns() -> None:
    """Not to be interrupted by others that wake up; for this thread, and those that it starts."""
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):  # a container may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def lengthen_turns() -> bool:
    """Longer turns for this thread alone; whether Linux agrees: before 6.12 it does, and does nothing."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or not hasattr(os, "SCHED_BATCH") or os.sched_getscheduler(0) != os.SCHED_BATCH:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    size = _ATTRIBUTES.size
    attributes = ctypes.create_string_buffer(
        _ATTRIBUTES.pack(size, os.SCHED_BATCH, 0, nice, 0, TURN, 0, 0, 0, 0), size
    )
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)

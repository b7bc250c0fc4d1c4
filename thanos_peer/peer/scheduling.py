"""How a peer shares the cores of its host: it wants throughput, and says so to Linux.

A process that wakes up should not interrupt one that runs, and the thread that computes needs long turns.
Otherwise, on a host with more peers than cores, no peer gets more than a message or two at a time, and every turn
begins with caches that another peer has filled. Where the system does not offer this, or forbids it, nothing
happens.
"""

import contextlib
import os
import platform
import struct
import sys
from typing import Final

TURN: Final = 20_000_000  # nanoseconds
# Numbers of the system call sched_setattr.
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQII")  # Linux's struct sched_attr


def prefer_long_turns() -> None:
    """Not to be interrupted by others that wake up; for this thread, and those that it starts."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # a container may forbid it
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def lengthen_turns() -> None:
    """Longer turns for this thread, and those that it starts from now on; Linux before 6.12 takes no notice."""
    number = _SCHED_SETATTR.get(platform.machine())
    # 32-bit systems have other numbers.
    if number is None or not hasattr(os, "SCHED_BATCH") or sys.maxsize < 2**32:
        return
    with contextlib.suppress(OSError, ImportError):  # not every Python has ctypes
        import ctypes  # noqa: PLC0415

        policy, nice, size = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), _ATTRIBUTES.size
        if policy == os.SCHED_BATCH:
            attributes = _ATTRIBUTES.pack(size, policy, 0, nice, 0, TURN, 0, 0, 0, 0)
            ctypes.CDLL(None).syscall(number, 0, ctypes.create_string_buffer(attributes, size), 0)

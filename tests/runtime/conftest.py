"""A clock and a disk that do what a test wants."""

import contextlib
import subprocess

import pytest
from runtime.namespaces import need

from thanos_peer.runtime import farewell, waiting


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set, for those that wait and those that leave."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    for module in (farewell, waiting):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def disk_of(tmp_path):
    """A function that makes a disk of some size."""
    need("mount", "umount")
    with contextlib.ExitStack() as stack:

        def make(size):
            disk = tmp_path / "disk"
            disk.mkdir()
            subprocess.run(["/usr/bin/mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
            stack.callback(subprocess.run, ["/usr/bin/umount", "-l", disk], check=True)
            return disk

        yield make

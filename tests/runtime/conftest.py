"""A disk that does what a test wants."""

import contextlib
import subprocess

import pytest
from runtime.namespaces import need


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

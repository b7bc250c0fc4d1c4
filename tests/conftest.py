import contextlib
import os
import signal
import subprocess

# Bits are compared with those of containers and of hosts behind ssh, which do not have what is set here: with
# OPENBLAS_CORETYPE, for instance, OpenBLAS takes other kernels than it would by itself.
for variable in [name for name in os.environ if name.startswith("OPENBLAS_")]:
    del os.environ[variable]
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    # One thread, as peers have it, because bits are compared. NumPy reads the variables when it is imported,
    # later.
    os.environ[variable] = "1"

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from namespaces import need  # noqa: E402

from thanos_peer.launch import ports  # noqa: E402

settings.register_profile("thanos-peer", deadline=None, max_examples=60)
settings.load_profile("thanos-peer")
# A shell may have SIGINT ignored, and all children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run beside each other, and a port is free until its peer listens, seconds later: each process has its own.
_number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
ports.PORTS = ports.PORTS[_number :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]


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

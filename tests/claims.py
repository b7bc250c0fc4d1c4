"""Files that claim more than they hold, and a process that has little memory for them."""

import contextlib
import io
import resource
import zipfile
from pathlib import Path

import numpy as np

# Bytes of address space besides what is in use already.
SPARE = 2**30


@contextlib.contextmanager
def little_memory():
    """Whatever a file claims, nothing here takes more than a gigabyte for it."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def npy_header(*shape, descr="<f8"):
    """The beginning of a .npy file."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def zipped(compression=zipfile.ZIP_STORED, **members):
    """A .npz file of these .npy files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()

"""The command line. `main` sets the number of BLAS threads before numpy is loaded, then hands over to click."""

import os
import signal
import sys
from types import FrameType

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    """Run `thanos-peer`.

    One BLAS thread unless the environment says otherwise: the blocks are small, many peers share a machine,
    and a sum split over threads has other bits.
    """
    _open_standard_files()
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)
    for variable in _THREADS:
        os.environ.setdefault(variable, "1")
    # A process that ignores SIGINT goes on ignoring it.
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        # While the program loads, there is nothing to say: Ctrl-C just ends it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # NumPy reads the variables when it is loaded, so this import comes after them.
    from thanos_peer.cli.app import app  # noqa: PLC0415

    if is_interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app(prog_name="thanos-peer")


def _open_standard_files() -> None:
    """Have no socket or file take the number of a standard one that was closed, and get what is printed there."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # Python opens nothing in its place
            # A new descriptor gets the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
            name = ("stdin", "stdout", "stderr")[number]
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: PTH123, SIM115


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """What SIGTERM does by itself to any process but the first of a container, which it does nothing to.

    A peer that has begun its rounds finishes the round; before, while it reads its data, there is nothing to keep.
    """
    os._exit(128 + number)

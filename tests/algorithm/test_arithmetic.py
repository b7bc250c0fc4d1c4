"""The line that tells whether two machines round alike."""

import os
import platform
import subprocess
import sys

import pytest

from thanos_peer.algorithm.arithmetic import fingerprint

SHOWS = "from thanos_peer.algorithm.arithmetic import fingerprint; print(fingerprint())"


def shown_with(**variables):
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"} | variables
    return subprocess.check_output([sys.executable, "-c", SHOWS], text=True, env=environment).strip()


def test_one_machine_says_the_same_each_time():
    assert fingerprint() == fingerprint()
    assert shown_with() == shown_with()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names kernels of x86-64")
def test_other_kernels_of_the_same_library_say_something_else():
    assert shown_with(OPENBLAS_CORETYPE="Haswell") != shown_with(OPENBLAS_CORETYPE="Nehalem")

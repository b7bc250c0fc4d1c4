"""The command line, called in this process or as one of its own."""

import os
import subprocess
import sys

from click.testing import CliRunner

from thanos_peer.cli.app import app


def call(*arguments, code=0):
    """Run a command here; what it did not foresee is raised. It must end with this code, unless that is None."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert code in (None, result.exit_code), result.output
    assert "Traceback" not in result.output
    return result


def environment(**variables):
    """Ours, without what would hide the defaults for BLAS."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    return kept | variables


def start(*arguments, script=("-m", "thanos_peer"), **options):
    """Start a command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, *script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        **options,
    )

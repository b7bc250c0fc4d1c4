"""The top of the command line: help, version, and errors turned into exit codes."""

import errno
import os
import signal
import sys
from typing import Any

import click

from thanos_peer import __version__
from thanos_peer.cli.chaos import chaos_command
from thanos_peer.cli.compare import compare_command
from thanos_peer.cli.compose import compose_command
from thanos_peer.cli.disclose import disclose_command
from thanos_peer.cli.features import features_command
from thanos_peer.cli.fork_server import fork_server_command
from thanos_peer.cli.hosts import hosts_command
from thanos_peer.cli.keys import keys_group
from thanos_peer.cli.kubernetes import kubernetes_command
from thanos_peer.cli.report import report_command
from thanos_peer.cli.reproduce import reproduce_command
from thanos_peer.cli.run import run_command
from thanos_peer.cli.simulate import simulate_command
from thanos_peer.cli.start import start_command
from thanos_peer.cli.status import status_command
from thanos_peer.cli.topology import topology_group
from thanos_peer.cli.transform import transform_command
from thanos_peer.cli.verify import verify_command
from thanos_peer.errors import ThanosPeerError

EXIT_FILE = 3
FILES_ERRORS = {errno.EMFILE, errno.ENFILE}
# Error codes of a write, whose errors name no file.
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class _App(click.Group):
    """A group whose commands may raise our errors: one message, the error's exit code, no traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except ThanosPeerError as error:
            raise _Failure(str(error), error.exit_code) from error
        except KeyboardInterrupt as error:
            raise _Failure("interrupted", 128 + signal.SIGINT) from error
        except MemoryError as error:
            raise _Failure(f"this machine has not enough memory: {error}", EXIT_FILE) from error
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(128 + signal.SIGPIPE) from None
        except OSError as error:
            if error.errno in FILES_ERRORS:
                raise _Failure(
                    f"{error.strerror}: raise the limit, for instance ulimit -n 4096", EXIT_FILE
                ) from error
            if error.filename is None and error.errno not in DISK_ERRORS:
                raise
            raise _Failure(f"{error.filename or 'the disk'}: {error.strerror}", EXIT_FILE) from error


class _Failure(click.ClickException):
    # Click has one exit code per class, our errors have one each.
    exit_code: int  # type: ignore[misc]

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@click.group(
    cls=_App,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 a bug of ours, 2 wrong usage, 3 a wrong file or setting, 4 the numbers "
    "diverged, 5 peers cannot work together, 6 a neighbor was lost, 7 different bits, 8 a state that cannot be "
    "saved or gone on from, 9 faults of `chaos` did not strike, 10 a false claim, 130 or 143 interrupted (results "
    "so far are kept), 137 a peer of `run` was killed, 141 the output was not read to its end.",
)
@click.version_option(__version__, prog_name="thanos-peer")
def app() -> None:
    """Sparse components of the data of many organisations, whose samples stay where they are.

    Agents on a connected graph each hold samples of their own. Together they minimise sum_i f_i(X) + g_i(X) over
    matrices with orthonormal columns. Each speaks to its neighbors only: exact methods sum over a tree of the
    graph, others, THANOS among them, mix matrices round by round. One TOML file describes the network, the
    problem and the algorithm. What is sent tells others more or less, by method: docs/privacy.md.

    \b
    Try:
      thanos-peer topology new ring --peers 5 -o ring.toml
      thanos-peer topology check ring.toml
      thanos-peer run ring.toml
    """


for command in (
    topology_group,
    keys_group,
    simulate_command,
    run_command,
    verify_command,
    compare_command,
    chaos_command,
    start_command,
    fork_server_command,
    status_command,
    features_command,
    disclose_command,
    hosts_command,
    compose_command,
    kubernetes_command,
    report_command,
    transform_command,
    reproduce_command,
):
    app.add_command(command)

"""`thanos-peer start`: one peer of a topology, on this host."""

import os
import re
import socket
import sys
from pathlib import Path

import click

from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.errors import ConfigError
from thanos_peer.runtime.daemon import Options, run_peer
from thanos_peer.runtime.logs import LEVELS, set_up_logging
from thanos_peer.runtime.waiting import Patience
from thanos_peer.topology import load
from thanos_peer.topology.sections import check_address

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


def id_from_environment() -> int | None:
    """The id that a launcher gave this process: a rank, or the ordinal of a pod of a StatefulSet."""
    for variable in RANK_VARIABLES:
        if variable in os.environ:
            return _whole_number(variable, os.environ[variable])
    ordinal = re.fullmatch(r".*-(\d+)", socket.gethostname())
    if "KUBERNETES_SERVICE_HOST" in os.environ and ordinal:
        return int(ordinal.group(1))
    return None


def _whole_number(variable: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"{variable} = {text!a} is no peer id; it must be a whole number, or give --id")
    return int(text)


def _address(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    """Refuse an option that is no address."""
    try:
        return None if value is None else check_address(value)
    except ValueError as error:
        raise ConfigError(f"--{parameter.name} {value}: {error}") from error


@click.command("start")
@click.option(
    "--id",
    "agent",
    type=click.IntRange(min=0),
    envvar="THANOS_PEER_ID",
    show_envvar=True,
    help="Which peer of the topology this is.  [default: the rank of srun or mpirun, the ordinal of a pod]",
)
@click.option(
    "--topology",
    "file",
    type=click.Path(path_type=Path),
    required=True,
    envvar="THANOS_PEER_TOPOLOGY",
    show_envvar=True,
    help="The topology file, the same at every peer.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Run directory.  [default: runs/NAME]")
@click.option(
    "--bind", metavar="ADDRESS", callback=_address, help="Listen here instead, for instance tcp://0.0.0.0:17000."
)
@click.option(
    "--status",
    metavar="ADDRESS",
    callback=_address,
    help="Also answer `thanos-peer status` here, not on this host only.",
)
@click.option(
    "--give-up-after",
    type=FiniteFloat(min=0, min_open=True),
    metavar="SECONDS",
    help="End with code 6 when a neighbor is missing for so long.  [default: wait for ever, and say so]",
)
@click.option(
    "--farewell",
    type=FiniteFloat(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="When done, stay this long for neighbors that may still ask.",
)
@click.option("--keep-every", type=click.IntRange(min=0), default=0, help="Keep the X of every so many rounds.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-json", is_flag=True, help="Log JSON lines.")
@click.option("--end-with-stdin", is_flag=True, hidden=True)
def start_command(
    agent: int | None,
    file: Path,
    out: Path | None,
    bind: str | None,
    status: str | None,
    give_up_after: float | None,
    farewell: float,
    keep_every: int,
    log_level: str,
    log_json: bool,
    end_with_stdin: bool,
) -> None:
    """Run one peer of a topology until the network is done.

    Start the peers in any order, on one host or many; each waits for its neighbors and says for whom. SIGINT and
    SIGTERM finish the round, write the results and end with code 130 or 143; a second one ends at once.
    """
    agent = id_from_environment() if agent is None else agent
    if agent is None:
        raise ConfigError("which peer is this? give --id, or set THANOS_PEER_ID")
    topology = load(file, data_of={agent})
    if agent >= topology.d:
        raise ConfigError(f"--id {agent}: {file} has the peers 0 to {topology.d - 1}")
    set_up_logging(agent, level=log_level, as_json=log_json)
    options = Options(
        out=out or Path("runs") / topology.name,
        bind=bind,
        status=status,
        keep_every=keep_every,
        patience=Patience(give_up_after, farewell),
        ends_with_stdin=end_with_stdin,
    )
    sys.exit(run_peer(topology, agent, options))

"""`thanos-peer start`: one peer of a topology, on this host."""

import logging
import os
import re
import socket
import sys
from pathlib import Path

import click

from thanos_peer.cli.ids import check_id
from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.cli.paths import PATH
from thanos_peer.cli.policy import POLICY, site_policy
from thanos_peer.errors import ConfigError
from thanos_peer.own_code import check_allowed
from thanos_peer.peer.daemon import PeerOptions, run_peer
from thanos_peer.peer.logs import LOG_LEVELS, set_up_logging
from thanos_peer.peer.signals import Signals
from thanos_peer.protocol.waiting import Patience
from thanos_peer.topology import load
from thanos_peer.topology.sections import check_address

log = logging.getLogger("thanos_peer")

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


SURVIVE = click.option(
    "--survive",
    type=click.Choice(["power", "kill", "nothing"]),
    default="power",
    show_default=True,
    help="What a peer comes back from with the same bits: power cuts too, a killed process only, or nothing.",
)


ALLOW_CODE = click.option(
    "--allow-code",
    "allowed_code",
    metavar="MODULE",
    multiple=True,
    envvar="THANOS_PEER_ALLOW_CODE",
    show_envvar=True,
    help="Let the topology file name classes of this Python module, or of this file.py; give it again for more.",
)

# No environment variable sets it: code that is allowed on this host is not thereby allowed elsewhere.
LET_PEERS_RUN = click.option(
    "--allow-code",
    "allowed_code",
    metavar="MODULE",
    multiple=True,
    help="Let the peers run this Python module that FILE names: a file.py, which goes along, or one that is "
    "installed where they run; give it again for more.",
)


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
    type=PATH,
    required=True,
    envvar="THANOS_PEER_TOPOLOGY",
    show_envvar=True,
    help="The topology file, the same at every peer.",
)
@click.option(
    "--secret-key",
    type=PATH,
    envvar="THANOS_PEER_SECRET_KEY",
    show_envvar=True,
    help="This peer's secret, as `keys new` makes it.  [default: ID.secret in FILE.keys beside FILE.toml]",
)
@click.option(
    "--data",
    type=PATH,
    envvar="THANOS_PEER_DATA",
    show_envvar=True,
    help="This peer's samples: .npy, .npz, .csv, .tsv, .txt or .parquet.  [default: as in the topology]",
)
@click.option(
    "--out",
    type=PATH,
    envvar="THANOS_PEER_OUT",
    show_envvar=True,
    help="Run directory.  [default: runs/NAME]",
)
@click.option(
    "--bind", metavar="ADDRESS", callback=_address, help="Listen here instead, for instance tcp://0.0.0.0:17000."
)
@click.option(
    "--status",
    metavar="ADDRESS",
    callback=_address,
    envvar="THANOS_PEER_STATUS",
    show_envvar=True,
    help="Also answer `thanos-peer status` at this address of this host, for instance tcp://127.0.0.1:17999.",
)
@click.option(
    "--give-up-after",
    type=FiniteFloat(min=0, min_open=True),
    metavar="SECONDS",
    help="End with code 6 when a neighbor is missing for so long.  [default: wait without end, and say so]",
)
@click.option(
    "--leave-after",
    "leave_after",
    type=FiniteFloat(min=0),
    metavar="SECONDS",
    help="When done, stay no longer than this for peers that are not.  [default: until all are, and say so]",
)
@click.option(
    "--state",
    type=PATH,
    envvar="THANOS_PEER_STATE",
    show_envvar=True,
    help="Directory of the checkpoints that a restart goes on from.  [default: OUT.state]",
)
@POLICY
@SURVIVE
@ALLOW_CODE
@click.option(
    "--fresh",
    is_flag=True,
    help="Begin anew: remove this peer's checkpoints first. A finished result stays: give another --out then.",
)
@click.option(
    "--restart-tracking",
    is_flag=True,
    help="If this peer's state is lost, have all peers start their tracking again: from their current X, or with "
    "the first phase if the network prepares its data or start, or minimises by sums.",
)
@click.option("--stay", is_flag=True, help="When done, stay until SIGTERM: for engines that restart what ends.")
@click.option("--keep-every", type=click.IntRange(min=0), default=0, help="Keep the X of every so many rounds.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True)
@click.option("--log-json", is_flag=True, help="Log JSON lines.")
@click.option("--end-with-stdin", is_flag=True, hidden=True)
def start_command(
    agent: int | None,
    file: Path,
    secret_key: Path | None,
    data: Path | None,
    out: Path | None,
    bind: str | None,
    status: str | None,
    give_up_after: float | None,
    leave_after: float | None,
    state: Path | None,
    policy: Path | None,
    survive: str,
    allowed_code: tuple[str, ...],
    fresh: bool,
    restart_tracking: bool,
    stay: bool,
    keep_every: int,
    log_level: str,
    log_json: bool,
    end_with_stdin: bool,
) -> None:
    """Run one peer of a topology until the network is done.

    Start the peers in any order, on one host or many; each waits for its neighbors and says for whom. SIGINT and
    SIGTERM finish the round, write the results and end with code 130 or 143; a second one ends at once.

    However a peer ended, the same command goes on where it was, and the final X has the same bits. --fresh begins
    anew.

    Rules of this site are looked at before anything is sent. Those in /etc/thanos-peer/policy.toml always hold.
    """
    agent = id_from_environment() if agent is None else agent
    if agent is None:
        raise ConfigError("which peer is this? give --id, or set THANOS_PEER_ID")
    own_data = {} if data is None else {agent: data}
    topology = load(file, data_of={agent}, own_data=own_data, reads_data=False, allowed_code=allowed_code)
    check_id(topology, agent)
    check_allowed(topology)
    set_up_logging(agent, level=log_level, as_json=log_json)
    options = PeerOptions(
        out=out or Path("runs") / topology.name,
        bind=bind,
        status=status,
        secret=secret_key,
        keep_every=keep_every,
        patience=Patience(give_up_after, leave_after),
        state=state,
        survive=survive,
        is_fresh=fresh,
        restarts_tracking=restart_tracking,
        ends_with_stdin=end_with_stdin,
        policy=site_policy(policy),
    )
    signals = Signals()
    code = run_peer(topology, agent, options, signals)
    if stay and code == 0 and not signals.heard:
        log.info("done; staying until SIGTERM")
        signals.wait()
    sys.exit(code)

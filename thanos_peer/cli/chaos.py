"""`thanos-peer chaos`: a run that everything happens to, and whether its bits and its claims care."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from thanos_peer.cli.paths import PATH
from thanos_peer.cli.policy import POLICY, check_all_peers, site_policy
from thanos_peer.cli.simulate import default_directory
from thanos_peer.cli.start import ALLOW_CODE
from thanos_peer.cli.verify import compare_bits, finished_in_one_process
from thanos_peer.errors import ConfigError
from thanos_peer.launch.chaos import Chaos
from thanos_peer.launch.claims import check_claims
from thanos_peer.launch.cluster import Cluster, prepare_peers
from thanos_peer.launch.faults import KINDS, Fault, draw_faults, kinds_for, latest_round
from thanos_peer.launch.ports import free_ports
from thanos_peer.launch.proxy import Proxies
from thanos_peer.problem import build
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.run_directory import RunDirectory
from thanos_peer.topology import Topology, load

NOT_STRUCK, FALSE_CLAIM = 9, 10


@click.command("chaos")
@click.argument("file", type=PATH)
@click.option("--faults", "count", type=click.IntRange(min=0), default=24, show_default=True, help="How many.")
@click.option(
    "--only",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="Only faults of this kind; give it again for more.  [default: all kinds in turn]",
)
@click.option(
    "--in-the-clear",
    is_flag=True,
    help="Without keys, for faults of single messages: drop and duplicate. FILE must have no keys.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the schedule.")
@click.option("--out", type=PATH, help="Run directory.  [default: runs/NAME-TIME]")
@POLICY
@ALLOW_CODE
@click.option("--quiet", "-q", is_flag=True, help="Only the verdict.")
def chaos_command(
    file: Path,
    count: int,
    kinds: tuple[str, ...],
    in_the_clear: bool,
    seed: int,
    out: Path | None,
    policy: Path | None,
    allowed_code: tuple[str, ...],
    quiet: bool,
) -> None:
    """Run topology FILE while things go wrong, and compare bits and claims with what they must be.

    One process runs the network first: its bits are compared with, and the faults are drawn over its rounds from
    the seed. Then all peers run as processes on this machine, with a proxy before each, encrypted as by `run`:
    peers without keys in FILE get new ones, and sum without masks.
    Peers are killed and started again: alone, several at once, again and again while they start, in the middle of
    saving. They are frozen and thawed. Connections are cut, refused, reset, left half open, stalled on one way or
    both, delayed, and lose bytes.

    Exit code 0 says three things. The results of every peer agree to the last bit, and all stopped after the same
    round. What the peers claim of them (converged, residual, mean, scale and more) follows from the data. All
    faults have struck. 7 for other bits, 10 for a false claim, 9 for fewer faults than asked for.

    Rules of this site hold as with `run`.
    """
    drawn_from = kinds_for(kinds, in_the_clear=in_the_clear)
    topology = load(file, allowed_code=allowed_code)
    if in_the_clear and topology.has_keys:
        raise ConfigError(f"--in-the-clear: {file} has keys, and nothing falls back to none; leave the option out")
    check_all_peers(topology, site_policy(policy), makes_keys=not in_the_clear)
    network = finished_in_one_process(build(topology))
    latest = latest_round(network.agents[0].k, topology.graph.diameter)
    schedule = draw_faults(count, drawn_from, d=topology.d, latest=latest, seed=seed)
    tell = _say_nothing if quiet else _say
    tell(f"in one process: {network.agents[0].k} rounds; faults are drawn up to round {latest}")
    with RunDirectory(out or default_directory(topology.name), topology, engine="chaos") as directory:
        binds, ports = _halves(free_ports(2 * topology.d))
        with Proxies(binds, ports, seed=seed, in_the_clear=in_the_clear) as proxies:
            chaos = _run(
                topology,
                directory.path,
                proxies,
                schedule,
                network,
                tell=tell,
                in_the_clear=in_the_clear,
                policy=policy,
            )
    _say_what_struck(chaos, proxies)
    compare_bits(network, topology, directory.path)
    _check_claims(topology, directory.path)
    if (struck := chaos.struck.total()) < count:
        click.echo(f"NOT STRUCK: only {struck} of {count} faults: the run was over before the others")
        sys.exit(NOT_STRUCK)


def _halves(ports: list[int]) -> tuple[list[int], list[int]]:
    return ports[: len(ports) // 2], ports[len(ports) // 2 :]


def _run(
    topology: Topology,
    path: Path,
    proxies: Proxies,
    schedule: list[Fault],
    network: AgentNetwork,
    *,
    tell: Callable[[str], None],
    in_the_clear: bool,
    policy: Path | None,
) -> Chaos:
    """Run all peers while the faults strike; how it went."""
    readdressed, secrets = prepare_peers(
        topology, path / "topology.toml", proxies.ports, proxies.targets, makes_keys=not in_the_clear
    )
    rounds = network.agents[0].k
    with Cluster(readdressed, path, secrets, keep_every=1, lasts=False, policy=policy) as cluster:
        chaos = Chaos(
            cluster,
            proxies,
            schedule,
            before=network.agents[0].runner.rounds_before_main,
            latest=latest_round(rounds, topology.graph.diameter),
            tell=tell,
        )
        chaos.run()
    return chaos


def _say_what_struck(chaos: Chaos, proxies: Proxies) -> None:
    struck = ", ".join(f"{count} x {kind}" for kind, count in sorted(chaos.struck.items())) or "nothing"
    done = "".join(f", {count} {what}" for what, count in sorted(proxies.counts().items()))
    kills = f"{chaos.victims.kills} kills ({chaos.kills_saving} of them caught in the middle of saving)"
    click.echo(f"struck: {struck}; {kills}{done}")


def _check_claims(topology: Topology, path: Path) -> None:
    """Say whether what the peers claim follows from the data; exit with code 10 if not."""
    checked = check_claims(topology, path)
    for claim in checked.false:
        click.echo(f"FALSE CLAIM: {claim}")
    if checked.false:
        sys.exit(FALSE_CLAIM)
    click.echo(
        f"true claims: all {checked.count} of {topology.d} peers, recomputed from the data{checked.left_out}"
    )


def _say(line: str) -> None:
    click.echo(line, err=True)


def _say_nothing(line: str) -> None:
    """Keep it."""

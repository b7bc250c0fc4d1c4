"""`thanos-peer chaos`: a run that everything happens to, and whether its bits care."""

from pathlib import Path

import click

from thanos_peer.cli.paths import PATH
from thanos_peer.cli.run import compare_with_one_process
from thanos_peer.cli.simulate import default_directory
from thanos_peer.cli.start import ALLOW_CODE
from thanos_peer.launch.chaos import KINDS, Chaos, draw_faults
from thanos_peer.launch.cluster import Cluster, free_ports, prepare_peers
from thanos_peer.launch.proxy import Proxies
from thanos_peer.problem import build
from thanos_peer.storage.run_directory import RunDirectory
from thanos_peer.topology import load


@click.command("chaos")
@click.argument("file", type=PATH)
@click.option("--faults", type=click.IntRange(min=0), default=24, show_default=True, help="How many.")
@click.option(
    "--only",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="Only faults of this kind; give it again for more.  [default: all kinds in turn]",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the schedule.")
@click.option("--out", type=PATH, help="Run directory.  [default: runs/NAME-TIME]")
@ALLOW_CODE
@click.option("--quiet", "-q", is_flag=True, help="Only the verdict.")
def chaos_command(
    file: Path,
    faults: int,
    kinds: tuple[str, ...],
    seed: int,
    out: Path | None,
    allowed_code: tuple[str, ...],
    quiet: bool,
) -> None:
    """Run topology FILE while things go wrong, and compare the bits with a run in one process.

    All peers run as processes on this machine, with a proxy before each. On a schedule drawn from the seed, peers
    are killed (alone, several at once, again and again while they start, in the middle of saving) and started
    again, frozen and thawed, cut off, and their messages delayed, dropped and duplicated. Exit code 0 if the
    results of every peer agree to the last bit and all stopped after the same round, 7 if not.
    """
    topology = load(file, allowed_code=allowed_code)
    instance = build(topology)
    schedule = draw_faults(faults, kinds or KINDS, d=topology.d, rounds=topology.max_rounds, seed=seed)
    with RunDirectory(out or default_directory(topology.name), topology, engine="chaos") as directory:
        binds = free_ports(topology.d)
        with Proxies(binds, seed=seed) as proxies:
            file = directory.path / "topology.toml"
            # encrypted messages cannot be dropped or doubled one by one: that would cut the connection
            readdressed, secrets = prepare_peers(topology, file, proxies.ports, binds, makes_keys=False)
            with Cluster(readdressed, directory.path, secrets, keep_every=1, lasts=False) as cluster:
                chaos = Chaos(cluster, proxies, schedule, tell=_say_nothing if quiet else _say)
                chaos.run()
    struck = ", ".join(f"{count} x {kind}" for kind, count in sorted(chaos.struck.items())) or "nothing"
    dropped = sum(weather.dropped for weather in proxies.weather)
    duplicated = sum(weather.duplicated for weather in proxies.weather)
    click.echo(
        f"struck: {struck}; {chaos.kills} kills ({chaos.kills_saving} of them caught in the middle of saving), "
        f"{dropped} messages dropped, {duplicated} duplicated"
    )
    if chaos.not_struck:
        click.echo(f"the run was too short for {chaos.not_struck} more: give it a larger max_rounds")
    compare_with_one_process(instance, directory.path)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _say_nothing(line: str) -> None:
    """Keep it."""

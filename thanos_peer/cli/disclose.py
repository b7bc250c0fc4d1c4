"""`thanos-peer disclose`: what one site of a topology reveals."""

from pathlib import Path

import click

from thanos_peer.cli.ids import check_id
from thanos_peer.cli.paths import PATH
from thanos_peer.cli.policy import POLICY, site_policy
from thanos_peer.disclosure import page
from thanos_peer.topology import load


@click.command("disclose")
@click.argument("file", type=PATH)
@click.option("--id", "agent", type=click.IntRange(min=0), required=True, help="Which peer of the topology.")
@POLICY
@click.option(
    "--output", "-o", type=PATH, help="Write the page there, and replace what is there.  [default: print it]"
)
def disclose_command(file: Path, agent: int, policy: Path | None, output: Path | None) -> None:
    """Say what peer I of topology FILE reveals: to whom, in which phase, and under which coalition.

    The page is Markdown, with a place for signatures. It follows from the topology and the rules of this site: no
    data file is read and nothing is sent. Its `agreement`, a digest, is in the result of the run too.
    """
    topology = load(file, data_of=(), may_lack_data=True)
    check_id(topology, agent)
    text = page(topology, agent, site_policy(policy))
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text, encoding="utf-8")
    click.echo(f"written: {output}")

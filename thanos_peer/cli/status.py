"""`thanos-peer status`: what running peers are doing, from the peers themselves."""

import json
import sys
from typing import Any

import click

from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.runtime.status import ask, local_address
from thanos_peer.topology import load

NO_ANSWER = 6


@click.command("status")
@click.argument("targets", nargs=-1, required=True, metavar="FILE|ADDRESS...")
@click.option("--id", "agents", type=click.IntRange(min=0), multiple=True, help="With a file: only these peers.")
@click.option("--timeout", type=FiniteFloat(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="All that the peers say, as JSON lines.")
def status_command(targets: tuple[str, ...], agents: tuple[int, ...], timeout: float, as_json: bool) -> None:
    """Ask running peers what they are doing.

    A topology FILE means its peers on this host. An ADDRESS (tcp://HOST:PORT) is one that a peer was given with
    `start --status`. Exit code 0 if everybody answers, 6 if somebody does not.
    """
    asked: list[tuple[str, str]] = []
    for target in targets:
        if "://" in target:
            asked.append((target, target))
            continue
        topology = load(target, data_of=())
        chosen = agents or range(topology.d)
        asked += [(f"peer {i}", local_address(topology, i)) for i in chosen]
    answers = ask([address for _, address in asked], timeout=timeout)
    for (name, _), answer in zip(asked, answers, strict=True):
        if as_json:
            click.echo(json.dumps({"asked": name, "answer": answer}))
        else:
            click.echo(f"{name}: no answer within {timeout:g} s" if answer is None else describe(answer))
    if None in answers:
        sys.exit(NO_ANSWER)


def describe(status: dict[str, Any]) -> str:
    """A peer's answer, for people."""
    state = "done" if status["is_done"] else f"round {status['round']} of at most {status['last_round']}"
    edges = status["edges"].values()
    sent, received = (sum(edge[key] for edge in edges) for key in ("messages_sent", "messages_received"))
    traffic = f"{sent} messages sent, {received} received, {status['rejected']} refused"
    return "\n  ".join([f"peer {status['id']} of {status['name']}: {state}; {traffic}", *status["waiting"]])

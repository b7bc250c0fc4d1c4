"""`thanos-peer status`: what running peers are doing, from the peers themselves."""

import json
import math
import sys

import click

from thanos_peer.cli.ids import check_id
from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.peer.status import PeerStatus, RefusedStatus, ask, local_address
from thanos_peer.topology import load

NO_ANSWER = 6


@click.command("status")
@click.argument("targets", nargs=-1, required=True, metavar="FILE|ADDRESS...", envvar="THANOS_PEER_STATUS")
@click.option("--id", "agents", type=click.IntRange(min=0), multiple=True, help="With a file: only these peers.")
@click.option("--timeout", type=FiniteFloat(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="All that the peers say, as JSON lines.")
def status_command(targets: tuple[str, ...], agents: tuple[int, ...], timeout: float, as_json: bool) -> None:
    """Ask running peers what they are doing.

    A topology FILE means its peers on this host. An ADDRESS (tcp://HOST:PORT) is one that a peer was given with
    `start --status`; in a container, leave it out. Exit code 0 if all peers answer, 6 if one does not.
    """
    asked: list[tuple[str, str]] = []
    for target in targets:
        if "://" in target:
            asked.append((target, target))
            continue
        topology = load(target, data_of=())
        for agent in agents:
            check_id(topology, agent)
        chosen = agents or range(topology.d)
        asked += [(f"peer {i}", local_address(topology, i)) for i in chosen]
    answers = ask([address for _, address in asked], timeout=timeout)
    for (name, _), answer in zip(asked, answers, strict=True):
        if isinstance(answer, str):
            said = (
                json.dumps({"asked": name, "answer": None, "problem": answer}) if as_json else f"{name}: {answer}"
            )
        else:
            said = (
                json.dumps({"asked": name, "answer": answer.model_dump()}) if as_json else describe_status(answer)
            )
        click.echo(said)
    if any(isinstance(answer, str) for answer in answers):
        sys.exit(NO_ANSWER)


def describe_status(status: PeerStatus) -> str:
    """A peer's answer, for people."""
    state = f"done, {status.verdict or 'with no verdict'}" if status.is_done else _round_of(status)
    if status.epoch:
        state += f", epoch {status.epoch} (the tracking was started again)"
    sent, received = (
        sum(getattr(edge, key) for edge in status.edges.values()) for key in ("messages_sent", "messages_received")
    )
    traffic = f"{sent} messages sent, {received} received, {status.rejected} refused"
    refused = [_describe_refused(each) for each in status.misbehaving]
    return "\n  ".join([f"peer {status.id} of {status.name}: {state}; {traffic}", *refused, *status.waiting])


def _describe_refused(neighbor: RefusedStatus) -> str:
    """What was refused of a neighbor, and whether its connection is closed for that."""
    closed = (
        f"; its connection is closed for {math.ceil(neighbor.seconds_closed)} s" if neighbor.seconds_closed else ""
    )
    return (
        f"refused {neighbor.refused} message(s) of peer {neighbor.id}, the latest from {neighbor.latest}{closed}"
    )


def _round_of(status: PeerStatus) -> str:
    """The round; where there are several phases, which one, and the round in it."""
    phases, began = status.phases, status.round - status.phase_round
    if len(phases) == 1:
        return f"round {status.round} of at most {status.last_round}"
    at = f"phase {status.phase} ({phases.index(status.phase) + 1} of {len(phases)})"
    return f"{at}, round {status.phase_round} of at most {status.last_round - began}"

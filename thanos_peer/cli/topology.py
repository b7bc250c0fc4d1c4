"""`thanos-peer topology`: make, check and draw topology files."""

import tomllib
from pathlib import Path
from typing import Any

import click

from thanos_peer.algorithm.methods import AUTO, CHOICES, METHODS, PRESETS
from thanos_peer.algorithm.regularizers import REGULARIZERS
from thanos_peer.cli.ids import check_id
from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.cli.paths import PATH
from thanos_peer.disclosure import exposure_facts
from thanos_peer.errors import ConfigError, TopologyError
from thanos_peer.phases import Phase
from thanos_peer.plots import draw_topology
from thanos_peer.preparation import outline
from thanos_peer.problem import build, proven_parameters
from thanos_peer.topology import Topology, families, load, parse
from thanos_peer.topology.prediction import (
    OF_A_GAP,
    cheaper_method,
    crossing,
    digits_of,
    outlook_of,
    suits,
    sums_of_start,
)
from thanos_peer.topology.render import Draft, render
from thanos_peer.topology.sections import MOST_PEERS
from thanos_peer.topology.sockets import socket_mistakes
from thanos_peer.topology.variants import with_method


@click.group("topology")
def topology_group() -> None:
    """Make, check and draw topology files."""


def _read_options(context: click.Context, parameter: click.Parameter, lines: tuple[str, ...]) -> dict[str, Any]:
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise click.BadParameter(f"must be KEY=VALUE as TOML has it: {error}", context, parameter) from error


@topology_group.command("new")
@click.argument("family", type=click.Choice(list(families.FAMILIES)))
@click.option(
    "--peers", "-d", type=click.IntRange(1, MOST_PEERS), default=8, show_default=True, help="How many agents."
)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File.  [default: stdout]")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--name", help="Name of the run.  [default: FAMILY-PEERS]")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of graph and data.")
@click.option(
    "--probability",
    type=FiniteFloat(0, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="erdos-renyi: of an edge.",
)
@click.option(
    "--radius",
    type=FiniteFloat(min=0, min_open=True),
    default=0.4,
    show_default=True,
    help="geometric: of sight.",
)
@click.option("--columns", type=click.IntRange(min=1), help="grid, torus: width.  [default: as square as can be]")
@click.option("--n", type=click.IntRange(min=1), default=10, show_default=True, help="Features.")
@click.option("--p", type=click.IntRange(min=1), default=3, show_default=True, help="Components.")
@click.option(
    "--regularizer",
    type=click.Choice(list(REGULARIZERS)),
    default="l1",
    show_default=True,
    help="; ".join(f"{name}: {kind.words}" for name, kind in REGULARIZERS.items()) + ".",
)
@click.option("--mu", type=FiniteFloat(min=0), default=0.1, show_default=True, help="Weight of the regularizer.")
@click.option(
    "--regularizer-option",
    "regularizer_options",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_read_options,
    help="What the regularizer needs besides, as TOML has it; can be given several times."
    + "".join(
        f" {name}: {key}, {what}." for name, kind in REGULARIZERS.items() for key, what in kind.options.items()
    ),
)
@click.option("--samples", type=click.IntRange(min=1), help="Of all peers together.  [default: 10 per peer]")
@click.option(
    "--method",
    type=click.Choice(CHOICES),
    default="auto",
    show_default=True,
    help="auto: the exact answer, by gram or proximal, whichever sends less.",
)
@click.option("--preset", type=click.Choice(list(PRESETS)), help="thanos: the paper's constants, by name.")
@click.option(
    "--sigma", type=FiniteFloat(min=0, min_open=True), help="thanos: a constant sigma.  [default: k^(-1/3)]"
)
@click.option(
    "--rounds",
    "max_rounds",
    type=click.IntRange(min=1),
    help="At most, of the method.  [default: 100000 of the exact methods, 3000 of the others]",
)
@click.option(
    "--tolerance",
    type=FiniteFloat(min=0),
    help="Of the residual; 0 runs all rounds.  [default: 1e-6 of thanos and destiny, else that of the method]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Host in the addresses.")
@click.option(
    "--first-port", type=click.IntRange(1, 65535), default=17000, show_default=True, help="Peer 0's port."
)
def new_topology_command(
    family: str,
    peers: int,
    output: Path | None,
    force: bool,
    name: str | None,
    probability: float,
    radius: float,
    columns: int | None,
    samples: int | None,
    **draft: Any,
) -> None:
    """Write a topology file with a graph of the given FAMILY and a synthetic problem.

    Random families are seeded, and drawn again until they are connected.
    """
    edges = families.make(
        family, peers, seed=draft["seed"], probability=probability, radius=radius, columns=columns
    )
    name, title = name or f"{family}-{peers}", f"A network of {peers} peers: {family}."
    text = render(Draft(name=name, d=peers, edges=edges, title=title, samples=samples or 10 * peers, **draft))
    # A file that would be refused is never written.
    parse(tomllib.loads(text), file=output or Path("the new topology"))
    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise ConfigError(f"{output} exists already; choose another name, or replace it with --force")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    click.echo(
        f"{output}: {peers} peers, {len(edges)} edges; look at it with: thanos-peer topology check {output}"
    )


@topology_group.command("check")
@click.argument("file", type=PATH)
@click.option("--id", "agent", type=click.IntRange(min=0), help="Check the data file of this peer only.")
def check_command(file: Path, agent: int | None) -> None:
    """Check topology FILE, and print what follows from it.

    All mistakes are reported together. Data files are read too: all that are named, or with --id only the one of
    the peer that lives on this host. An ipc:// address where this host has something else than a socket is a
    mistake.
    """
    topology = load(file, data_of=None if agent is None else {agent}, may_lack_data=True)
    if agent is not None:
        check_id(topology, agent)
    if mistakes := list(socket_mistakes(topology)):
        raise TopologyError(str(file), mistakes)
    for label, text in facts(topology).items():
        click.echo(f"{label:24}{text}")
    is_whole = topology.problem.data.kind == "synthetic" or all(peer.data for peer in topology.peers)
    has_condition = METHODS[topology.method].has_parameters
    if agent is None and is_whole and has_condition and not topology.problem.own_code():  # not run here
        click.echo(f"{'Condition 1 asks for':24}{theory(topology)}")


@topology_group.command("draw")
@click.argument("file", type=PATH)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A .png, .svg or .pdf file, replaced if it exists.  [default: NAME.svg]",
)
def draw_command(file: Path, output: Path | None) -> None:
    """Draw the graph of topology FILE: peers by degree, edges by weight (needs the extra `plots`)."""
    topology = load(file, data_of=())
    path = output or Path(f"{topology.name}.svg")
    draw_topology(topology, path)
    click.echo(f"drawn: {path}")


def facts(topology: Topology) -> dict[str, str]:
    """What follows from a topology, for a person."""
    graph, problem = topology.graph, topology.problem
    degrees, messages, plan = graph.degrees, topology.messages_per_round, outline(topology)
    rounds = (graph.rounds_to_consensus(factor) for factor in (1e-6, 1e-15))
    mu = "" if problem.is_smooth else f", {problem.regularizer} with {problem.weights_in_words()}"
    preset = "" if topology.algorithm.preset is None else f", preset {topology.algorithm.preset}"
    own = "" if problem.objective is None else f"{problem.objective}, "
    return {
        "name": topology.name,
        "digest": topology.digest,
        "peers": str(topology.d),
        "edges": str(len(graph.edges)),
        "degrees": f"{min(degrees)} to {max(degrees)}, mean {sum(degrees) / len(degrees):.2f}",
        "weights": "Metropolis" if graph.explicit_weights is None else "explicit matrix",
        "lambda": f"{graph.lambda_:.6f}",
        "spectral gap": f"{1 - graph.lambda_:.6f}",
        "diameter": str(graph.diameter),
        "messages per round": str(messages),
        "tree": f"root {graph.tree.root}, height {graph.tree.height}: a sum takes {graph.tree.rounds} rounds",
        "rounds to consensus": "{} to shrink disagreement by 1e-6, {} by 1e-15".format(*rounds),
        "problem": f"{own}n = {problem.n}, p = {problem.p}{mu}, data: {problem.data.kind}",
        "algorithm": f"{topology.method}{preset}, at most {plan.most} rounds, tolerance {topology.tolerance:g}",
        **_precision(topology),
        "phases": ", ".join(map(_rounds_of, plan.phases)),
        **exposure_facts(topology),
        **predictions(topology),
    }


def _precision(topology: Topology) -> dict[str, str]:
    """What numbers that are rounded on their way leave of the accuracy."""
    if topology.algorithm.exchange == "float64":
        return {}
    if not METHODS[topology.method].mixes:
        return {
            "float32": f"changes nothing: {topology.method} sends whole numbers and doubles, and is as accurate"
        }
    least = f"X and D are rounded on their way: a residual of about {topology.least_tolerance:g} can be reached"
    is_below = 0 < topology.tolerance < topology.least_tolerance
    return {"float32": least + ("; the tolerance is below that" if is_below else "")}


def predictions(topology: Topology) -> dict[str, str]:
    """What each method that suits the file sends in all its phases, and where the cheapest exact one changes."""
    lines = {
        f"{name} sends": _sent_by(with_method(topology, name)) + " (used by this file)" * (name == topology.method)
        for name in METHODS
        if can_take(topology, name)
    }
    if topology.problem.objective is not None:
        return lines
    problem, algorithm = topology.problem, with_method(topology, AUTO).algorithm
    digits = digits_of(algorithm)
    to_end, to_gap = (crossing(problem, algorithm, each) for each in (digits, min(digits, OF_A_GAP)))
    chosen = cheaper_method(problem, algorithm, digits)
    return lines | {
        f"{to_end.few} sends less": f"than {to_end.many} up to n = {to_end.n} (up to n = {to_gap.n} if a gap of "
        f'1e-8 is enough) with p = {problem.p}; method = "{AUTO}" takes {chosen}'
    }


def can_take(topology: Topology, method: str) -> bool:
    """Whether the file can be run so: of an objective of one's own no step is known but the file's."""
    is_own = topology.problem.objective is not None and method != topology.method
    return suits(topology.problem, method) and not (is_own and "step" in METHODS[method].settings)


def _sent_by(topology: Topology) -> str:
    """Rounds and bytes of all phases, and what they rest on."""
    if topology.problem.n > (most := METHODS[topology.method].largest_n):
        return f"refused: n is above {most}, and one message would exceed 64 MiB"
    plan, rounds_each = outline(topology), topology.graph.tree.rounds
    main = plan.phases[plan.main]
    expected = {phase.name: phase.most for phase in plan.phases}
    basis, method = f"{main.payload(1):,} bytes a round", METHODS[topology.method]
    has_end = not (method.mixes and main.takes_all_rounds)
    if (typical := method.expected(outlook_of(topology)) if has_end else None) is not None:
        expected[main.name], basis = min(main.most, typical.rounds), typical.words
    if "leading" in expected:
        start = sums_of_start(topology.problem)
        expected["leading"] = min(expected["leading"], start * rounds_each)
        basis += f" after {start} sums that find the start"
    payload = sum(phase.payload(expected[phase.name]) for phase in plan.phases)
    about = "at most " if typical is None else ""
    return f"{about}{sum(expected.values()):,} rounds, {payload:,} bytes: {basis}"


def _rounds_of(phase: Phase) -> str:
    return f"{phase.name} {phase.most}" if phase.takes_all_rounds else f"{phase.name} up to {phase.most}"


def theory(topology: Topology) -> str:
    """What the convergence proof asks of beta and of a constant step."""
    beta, eta = proven_parameters(build(topology))
    return f"beta > {beta:.1e}, a constant step < {eta:.1e} (a proof's bounds, far on the safe side)"

"""A topology file as text: what `topology new` writes, commented for whoever edits it next."""

from collections.abc import Sequence
from dataclasses import dataclass

import tomlkit

from thanos_peer.topology.graph import Edge


@dataclass(frozen=True)
class Draft:
    """What a new topology file is to say.

    Attributes:
        sigma: A constant sigma; None for the decreasing rule k^(-1/3).
        edges: In the order in which they are written.
    """

    name: str
    d: int
    edges: Sequence[Edge]
    title: str
    n: int = 10
    p: int = 3
    regularizer: str = "l1"
    mu: float = 0.1
    samples: int = 320
    seed: int = 1
    sigma: float | None = None
    max_rounds: int = 3000
    tolerance: float = 1e-6
    host: str = "127.0.0.1"
    first_port: int = 17000


def render(draft: Draft) -> str:
    """The file, in TOML."""
    lines = [
        f"# {draft.title}",
        "# Everything that all peers must agree on. `thanos-peer topology check FILE` says what follows from it.",
        "",
        f"name = {_quote(draft.name)}",
        _line('weights = "metropolis"', "or an explicit matrix, a row per peer"),
        "edges = [",
        *_lines_of_edges(draft.edges),
        "]",
        "",
        _line("[problem]", "sparse PCA: -1/2 sum_i tr(X' A_i A_i' X) + mu r(X), X of n x p with X'X = I"),
        _line(f"n = {draft.n}", "features"),
        _line(f"p = {draft.p}", "components"),
        _line(f'regularizer = "{draft.regularizer}"', 'r: "l1", "l21" (rows) or "none"'),
        *([] if draft.regularizer == "none" else [_line(f"mu = {draft.mu!r}", "its weight")]),
        "",
        "[problem.data]",
        _line('kind = "synthetic"', 'or "files": then every peer has data = "FILE", a row per sample'),
        f"seed = {draft.seed}",
        _line(f"samples = {draft.samples}", "of all peers together"),
        _line('scale = "unit"', 'A / ||A||_2; or "raw"'),
        "",
        "[algorithm]",
        _line('method = "thanos"', 'or "destiny", for regularizer = "none"'),
        _line("beta = 1.0", "penalty that keeps X near the manifold"),
        f"max_rounds = {draft.max_rounds}",
        _line(f"tolerance = {draft.tolerance!r}", "stop when no peer's residual is above; 0 for all the rounds"),
        _line('start = { kind = "svd" }', 'or { kind = "random", seed = 1 }'),
        _line('step = { rule = "bb", first = 0.1 }', 'Barzilai-Borwein; or { rule = "constant", eta = 0.1 }'),
        _smoothing(draft.sigma),
    ]
    for i in range(draft.d):
        address = f"tcp://{draft.host}:{draft.first_port + i}"
        lines += ["", "[[peers]]", f"id = {i}", f"address = {_quote(address)}"]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return tomlkit.string(text).as_string()


def _line(text: str, comment: str) -> str:
    return f"{text.ljust(27)} # {comment}"


def _lines_of_edges(edges: Sequence[Edge]) -> list[str]:
    chunks = [edges[start : start + 10] for start in range(0, len(edges), 10)]
    return ["    " + " ".join(f"[{i}, {j}]," for i, j in chunk) for chunk in chunks]


def _smoothing(sigma: float | None) -> str:
    if sigma is not None:
        other = f'{{ rule = "decreasing", sigma0 = 1.0, exponent = {1 / 3!r} }}'
        return _line(f'smoothing = {{ rule = "constant", sigma = {sigma!r} }}', f"or {other}")
    return f"""smoothing.rule = "decreasing"
smoothing.sigma0 = 1.0
{_line(f"smoothing.exponent = {1 / 3!r}", "sigma^(k) = sigma0 * k^(-exponent)")}"""

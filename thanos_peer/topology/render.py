"""A topology file as text: what `topology new` writes, with comments for its editors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tomlkit

from thanos_peer.algorithm.methods import UNNAMED, traits_of
from thanos_peer.algorithm.regularizers import REGULARIZERS, is_smooth
from thanos_peer.topology.graph import Edge


@dataclass(frozen=True)
class Draft:
    """What a new topology file is to say.

    Attributes:
        preset: Settings of THANOS by name; None to write them out.
        sigma: A constant sigma of THANOS; None for the decreasing rule k^(-1/3).
        max_rounds: None for 3000 of THANOS and DESTINY, and for the default of other methods.
        tolerance: None for 1e-6 of THANOS and DESTINY, and for the default of other methods.
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
    regularizer_options: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 320
    seed: int = 1
    method: str = UNNAMED
    preset: str | None = None
    sigma: float | None = None
    max_rounds: int | None = None
    tolerance: float | None = None
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
        _line(f"n = {draft.n}", 'features; of files also by name: features = ["age", ...] or exclude = ["id"]'),
        _line(f"p = {draft.p}", "components"),
        _line(f'regularizer = "{draft.regularizer}"', f"r: {REGULARIZERS[draft.regularizer].words}"),
        *([] if is_smooth(draft.regularizer) else [_line(f"mu = {draft.mu!r}", "its weight")]),
        *_lines_of_options(draft.regularizer_options),
        "",
        "[problem.data]",
        _line('kind = "synthetic"', 'or "files": then every peer has data = "FILE", a row per sample'),
        f"seed = {draft.seed}",
        _line(f"samples = {draft.samples}", "of all peers together"),
        _line('scale = "unit"', 'A / ||A||_2; or "raw"'),
        "",
        "[algorithm]",
        *(_lines_of_parameters(draft) if traits_of(draft.method).has_parameters else _lines_of_method(draft)),
    ]
    for i in range(draft.d):
        address = f"tcp://{draft.host}:{draft.first_port + i}"
        lines += ["", "[[peers]]", f"id = {i}", f"address = {_quote(address)}"]
    return "\n".join(lines) + "\n"


def _lines_of_parameters(draft: Draft) -> list[str]:
    tolerance = 1e-6 if draft.tolerance is None else draft.tolerance
    is_named = draft.preset is not None
    beta = _line("beta = 1.0", "penalty that keeps X near the manifold")
    step = _line('step = { rule = "bb", first = 0.1 }', 'Barzilai-Borwein; or { rule = "constant", eta = 0.1 }')
    smooths = "smoothing" in traits_of(draft.method).settings and not (is_named and draft.sigma is None)
    return [
        _line(f'method = "{draft.method}"', 'or "destiny", for regularizer = "none"; "auto" for the exact answer'),
        *(_preset(draft) if is_named else [beta]),
        f"max_rounds = {draft.max_rounds or 3000}",
        _line(f"tolerance = {tolerance!r}", "stop when no peer's residual is above; 0 for all the rounds"),
        _line('start = { kind = "svd" }', 'or { kind = "random", seed = 1 }'),
        *([] if is_named else [step]),
        *([_smoothing(draft.sigma)] if smooths else []),
    ]


def _lines_of_method(draft: Draft) -> list[str]:
    # Written all the same: the file is refused then, and the error names it.
    of_thanos = [] if draft.sigma is None else [_smoothing(draft.sigma)]
    rounds = [] if draft.max_rounds is None else [f"max_rounds = {draft.max_rounds}"]
    tolerance = [] if draft.tolerance is None else [f"tolerance = {draft.tolerance!r}"]
    return [
        _line(
            f'method = "{draft.method}"', '"auto": the exact answer, by "gram" or "proximal", whichever sends less'
        ),
        _line('start = { kind = "leading" }', "the leading singular vectors of all data, found by the network"),
        # Written all the same: the file is refused then, and the error names it.
        *_preset(draft),
        *rounds,
        *tolerance,
        *of_thanos,
    ]


def _preset(draft: Draft) -> list[str]:
    words = "the paper's beta, steps and smoothing; keys beside it go before"
    return [] if draft.preset is None else [_line(f'preset = "{draft.preset}"', words)]


def _quote(text: str) -> str:
    return tomlkit.string(text).as_string()


def _lines_of_options(options: Mapping[str, Any]) -> list[str]:
    table = tomlkit.inline_table()
    table.update(options)
    return [f"regularizer_options = {table.as_string()}"] if options else []


def _line(text: str, comment: str) -> str:
    return f"{text.ljust(28)} # {comment}"


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

"""A topology file as text: what `topology new` writes, commented for whoever edits it next."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    weight = "" if draft.regularizer == "none" else f"mu = {draft.mu!r}                # its weight\n"
    return f"""\
# {draft.title}
# Everything that all peers must agree on. `thanos-peer topology check FILE` says what follows from it.

name = "{draft.name}"
weights = "metropolis"   # or an explicit matrix, a row per peer
edges = [
{_lines_of_edges(draft.edges)}]

[problem]                # sparse PCA: -1/2 sum_i tr(X' A_i A_i' X) + mu r(X), X of n x p with X'X = I
n = {draft.n}                   # features
p = {draft.p}                    # components
regularizer = "{draft.regularizer}"       # r: "l1", "l21" (rows) or "none"
{weight}
[problem.data]
kind = "synthetic"       # or "files": then every peer has data = "FILE.npy", a row per sample
seed = {draft.seed}
samples = {draft.samples}            # of all peers together
scale = "unit"           # A / ||A||_2; or "raw"

[algorithm]
method = "thanos"        # or "destiny", the same without r
beta = 1.0               # penalty that keeps X near the manifold
max_rounds = {draft.max_rounds}
tolerance = {draft.tolerance!r}        # stop when every peer's residual is below; 0 for all the rounds
start = {{ kind = "svd" }} # or {{ kind = "random", seed = 1 }}
step = {{ rule = "bb", first = 0.1 }} # Barzilai-Borwein; or {{ rule = "constant", eta = 0.1 }}
smoothing = {_smoothing(draft.sigma)}

{_peer_tables(draft)}"""


def _lines_of_edges(edges: Sequence[Edge]) -> str:
    chunks = [edges[start : start + 10] for start in range(0, len(edges), 10)]
    return "".join("    " + " ".join(f"[{i}, {j}]," for i, j in chunk) + "\n" for chunk in chunks)


def _smoothing(sigma: float | None) -> str:
    if sigma is None:
        return f'{{ rule = "decreasing", sigma0 = 1.0, exponent = {1 / 3!r} }} # sigma0 * k^(-exponent)'
    return f'{{ rule = "constant", sigma = {sigma!r} }}'


def _peer_tables(draft: Draft) -> str:
    return "\n".join(
        f'[[peers]]\nid = {i}\naddress = "tcp://{draft.host}:{draft.first_port + i}"\n' for i in range(draft.d)
    )

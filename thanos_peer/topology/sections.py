"""The sections of a topology file as pydantic models: types, ranges, and no unknown keys.

What concerns several keys at once (ids, edges, weights, p <= n) is checked in `checks.py`.
"""

import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

Positive = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


LARGEST_SIDE = 10**7  # of a matrix
LARGEST_MATRIX = 2**28  # entries, 2 GiB


class Section(BaseModel):
    """Types are not bent, NaN and Inf are no numbers, unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def check_address(address: str) -> str:
    """An address as it is, or ValueError with what is allowed."""
    tcp = re.fullmatch(r"tcp://(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+)):([1-9][0-9]{0,4})", address)
    if tcp and int(tcp.group(3)) <= 65535 and (_is_ipv6(tcp.group(1)) or _is_host(tcp.group(2))):
        return address
    if re.fullmatch(r"ipc://[^\x00-\x1f\x7f]{1,100}", address):
        return address
    raise ValueError(
        "must be tcp://HOST:PORT with a port of 1 to 65535 (an IPv6 host in brackets), or ipc://PATH of at "
        "most 100 characters"
    )


def _is_ipv6(text: str | None) -> bool:
    try:
        return text is not None and ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _is_host(text: str | None) -> bool:
    """A name, or an IPv4 address with four numbers up to 255."""
    if text is None or not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", text):
        return False
    if re.fullmatch(r"[0-9.]+", text) is None:
        return True
    try:
        return ipaddress.ip_address(text).version == 4
    except ValueError:
        return False


def _spell_regularizer(value: Any) -> Any:
    return "l21" if value == "l2,1" else value


class Peer(Section):
    """One agent: where it listens, and where its data lies on its own host."""

    id: Annotated[int, Field(ge=0, lt=2**31)]
    address: Annotated[str, AfterValidator(check_address)]
    bind: Annotated[str, AfterValidator(check_address)] | None = None
    data: Annotated[str, Field(min_length=1)] | None = None


class SyntheticData(Section):
    """A Gaussian A of (n, samples), its columns dealt out evenly; `unit` divides it by ||A||_2."""

    kind: Literal["synthetic"]
    seed: Seed
    samples: Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
    scale: Literal["unit", "raw"] = "unit"


class FileData(Section):
    """Each peer has its own file, named at the peer."""

    kind: Literal["files"]


class Problem(Section):
    """Sparse PCA (8): n features, p components, the regularizer and its weight mu."""

    n: Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
    p: Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
    regularizer: Annotated[Literal["l1", "l21", "none"], BeforeValidator(_spell_regularizer)]
    mu: Annotated[float, Field(ge=0)] | None = None
    data: Annotated[SyntheticData | FileData, Field(discriminator="kind")]


class ConstantStepSection(Section):
    """The same step size in every round."""

    rule: Literal["constant"]
    eta: Positive


class BarzilaiBorweinSection(Section):
    """The short Barzilai-Borwein step, with this one in the first round."""

    rule: Literal["bb"]
    first: Positive = 0.1


class ConstantSmoothingSection(Section):
    """The same sigma in every round."""

    rule: Literal["constant"]
    sigma: Positive


class DecreasingSmoothingSection(Section):
    """sigma0 * k^(-exponent)."""

    rule: Literal["decreasing"]
    sigma0: Positive = 1.0
    exponent: Positive = 1 / 3


class SvdStart(Section):
    """The leading left singular vectors of A: for synthetic data, which every peer can make."""

    kind: Literal["svd"]


class RandomStart(Section):
    """A random point of the manifold, the same at every peer."""

    kind: Literal["random"]
    seed: Seed


class Algorithm(Section):
    """How the agents go about it, and when they stop."""

    method: Literal["thanos", "destiny"] = "thanos"
    beta: Positive = 1.0
    max_rounds: Annotated[int, Field(ge=1, le=2**53)]
    tolerance: Annotated[float, Field(ge=0)] = 0.0
    exchange: Literal["float64", "float32"] = "float64"
    start: Annotated[SvdStart | RandomStart, Field(discriminator="kind")]
    step: Annotated[ConstantStepSection | BarzilaiBorweinSection, Field(discriminator="rule")]
    smoothing: (
        Annotated[ConstantSmoothingSection | DecreasingSmoothingSection, Field(discriminator="rule")] | None
    ) = None


def _is_word(value: Any) -> str:
    return "word" if isinstance(value, str) else "matrix"


class TopologyFile(Section):
    """The whole file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    weights: Annotated[
        Annotated[Literal["metropolis"], Tag("word")] | Annotated[list[list[float]], Tag("matrix")],
        Discriminator(_is_word),
    ] = "metropolis"
    edges: list[Annotated[list[Annotated[int, Field(ge=-(2**31), lt=2**31)]], Field(min_length=2, max_length=2)]]
    problem: Problem
    algorithm: Algorithm
    peers: Annotated[list[Peer], Field(min_length=1)]


SECTIONS: dict[tuple[str, ...], type[Section]] = {  # which model reads which place of the file
    (): TopologyFile,
    ("peers",): Peer,
    ("problem",): Problem,
    ("problem", "data", "synthetic"): SyntheticData,
    ("problem", "data", "files"): FileData,
    ("algorithm",): Algorithm,
    ("algorithm", "start", "svd"): SvdStart,
    ("algorithm", "start", "random"): RandomStart,
    ("algorithm", "step", "constant"): ConstantStepSection,
    ("algorithm", "step", "bb"): BarzilaiBorweinSection,
    ("algorithm", "smoothing", "constant"): ConstantSmoothingSection,
    ("algorithm", "smoothing", "decreasing"): DecreasingSmoothingSection,
}
UNION_KEYS = frozenset({place[1] for place in SECTIONS if len(place) == 3} | {"weights"})
UNION_TAGS = frozenset({place[2] for place in SECTIONS if len(place) == 3} | {"word", "matrix"})

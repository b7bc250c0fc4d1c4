"""The sections of a topology file as pydantic models: types, ranges, and no unknown keys.

What concerns several keys at once (ids, edges, weights, p <= n) is checked in `checks.py`.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from thanos_peer.algorithm.methods import CHOICES, UNNAMED
from thanos_peer.algorithm.regularizers import REGULARIZERS, is_smooth
from thanos_peer.algorithm.schedules import SMALLEST_SIGMA
from thanos_peer.samples import LARGEST_SIDE
from thanos_peer.samples.names import LONGEST_NAME
from thanos_peer.topology.code_names import check_code, check_options, check_regularizer
from thanos_peer.topology.section import Section
from thanos_peer.topology.weights import DEFAULT_RULE, AnyWeight, ChooseSection, PathSection


def _is_auto(value: Any) -> str:
    return "auto" if value == "auto" else "number"


Positive = Annotated[float, Field(gt=0)]
Sigma = Annotated[float, Field(ge=SMALLEST_SIGMA)]
PositiveOrAuto = Annotated[
    Annotated[Literal["auto"], Tag("auto")] | Annotated[Positive, Tag("number")], Discriminator(_is_auto)
]
Seed = Annotated[int, Field(ge=0, lt=2**63)]

LARGEST_MATRIX = 2**28  # entries, 2 GiB
# Share of the values of a feature that may be missing, where the file does not say.
MOST_MISSING = 0.5
# With more, what follows from a graph would take minutes to find out.
MOST_PEERS, MOST_EDGES = 2048, 2**18
# Characters of the path of a file, at most.
LONGEST_PATH = 4096

KEY_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"  # Z85
KEY_LENGTH = 40  # of them, for 32 bytes
InTheClear: TypeAlias = Literal["anyone on the network can read and change everything"]
IN_THE_CLEAR: str = get_args(InTheClear)[0]


def check_address(address: str) -> str:
    """An address as it is, or ValueError with what is allowed."""
    tcp = re.fullmatch(r"tcp://(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+)):([1-9][0-9]{0,4})", address)
    if tcp and int(tcp.group(3)) <= 65535 and (_is_ipv6(tcp.group(1)) or _is_host(tcp.group(2))):
        return address
    if re.fullmatch(r"ipc://[^\x00-\x1f\x7f-\x9f]{1,100}", address):
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


def check_key(key: str) -> str:
    """A key as it is, or ValueError: eight groups of five Z85 digits, each a number below 2^32."""
    if len(key) == KEY_LENGTH and set(key) <= set(KEY_DIGITS):
        groups = [key[start : start + 5] for start in range(0, KEY_LENGTH, 5)]
        if all(_group_value(group) < 2**32 for group in groups):
            return key
    raise ValueError(f"must be {KEY_LENGTH} Z85 characters, as `thanos-peer keys new` prints them")


def _group_value(group: str) -> int:
    value = 0
    for digit in group:
        value = value * 85 + KEY_DIGITS.index(digit)
    return value


def is_local(address: str) -> bool:
    """Whether only this host reaches an address: a local socket, or the loopback interface."""
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        return address.startswith("ipc://") or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_path(path: str) -> str:
    """The path of a file as it is, or ValueError."""
    if not 1 <= len(path) <= LONGEST_PATH or re.search(r"[\x00-\x1f\x7f-\x9f]", path):
        raise ValueError(f"must be a path of 1 to {LONGEST_PATH} characters, without control characters")
    return path


FilePath: TypeAlias = Annotated[str, AfterValidator(check_path)]


class PeerSection(Section):
    """One agent: where it listens, its key, and where its data lies on its own host; how many samples that has."""

    id: Annotated[int, Field(ge=0, lt=2**31)]
    address: Annotated[str, AfterValidator(check_address)]
    bind: Annotated[str, AfterValidator(check_address)] | None = None
    public_key: Annotated[str, AfterValidator(check_key)] | None = None
    data: FilePath | None = None
    samples: Annotated[int, Field(ge=1, le=LARGEST_SIDE)] | None = None


class SyntheticData(Section):
    """A Gaussian A of (n, samples), its columns dealt out evenly; `unit` divides it by ||A||_2."""

    kind: Literal["synthetic"]
    seed: Seed
    samples: Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
    scale: Literal["unit", "raw"] = "unit"

    @property
    def fills(self) -> bool:
        """Whether a missing value becomes the mean of its feature: none is missing."""
        return False

    def left_out(self) -> set[str]:
        """What says nothing."""
        return set()


class FileData(Section):
    """Each peer has its own file, named at the peer; what is done to all samples is agreed by the network."""

    kind: Literal["files"]
    center: bool = False
    scale: bool = False
    overall: Literal["auto", "raw"] = "raw"
    missing: Literal["refuse", "mean"] = "refuse"
    max_missing: Annotated[float, Field(gt=0, lt=1)] | None = None

    @property
    def fills(self) -> bool:
        """Whether a missing value becomes the mean of its feature."""
        return self.missing == "mean"

    @property
    def most_missing(self) -> float:
        """The largest share of the values of a feature that may be missing, of all samples together."""
        return MOST_MISSING if self.max_missing is None else self.max_missing

    def left_out(self) -> set[str]:
        """What says nothing: the digest of a file that refuses missing values does not know these keys."""
        return set() if self.fills else {"missing", "max_missing"}


PlainOptions: TypeAlias = Annotated[dict[str, Any], AfterValidator(check_options)]


def _check_names(names: list[str]) -> list[str]:
    """Names of columns as they are, or ValueError."""
    seen: set[str] = set()
    for number, name in enumerate(names):
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise ValueError(
                f"must be names of at most {LONGEST_NAME} printable characters; entry {number} is none"
            )
        if name in seen:
            raise ValueError(f"must name each column once; {name!a} is there twice")
        seen.add(name)
    return names


FeatureNames: TypeAlias = Annotated[
    list[str], Field(min_length=1, max_length=LARGEST_SIDE), AfterValidator(_check_names)
]


class Problem(Section):
    """Sparse PCA (8), or an objective of the user's own: n features, p components, the regularizer and its mu."""

    n: Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
    p: Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
    regularizer: Annotated[str, BeforeValidator(check_regularizer)]
    mu: AnyWeight | None = None
    choose: ChooseSection | None = None
    objective: Annotated[str, AfterValidator(check_code)] | None = None
    features: FeatureNames | None = None
    exclude: FeatureNames = Field(default_factory=list)
    objective_options: PlainOptions = Field(default_factory=dict)
    regularizer_options: PlainOptions = Field(default_factory=dict)
    data: Annotated[SyntheticData | FileData, Field(discriminator="kind")]

    @property
    def is_smooth(self) -> bool:
        """Whether there is no regularizer."""
        return is_smooth(self.regularizer)

    @property
    def weights(self) -> tuple[float, ...]:
        """All values of mu, from the largest on, as far as they stand in the file; 0 for no regularizer."""
        if isinstance(self.mu, PathSection):
            return ()
        return tuple(sorted(self.mu, reverse=True)) if isinstance(self.mu, list) else (self.mu or 0.0,)

    @property
    def weight_count(self) -> int:
        """How many values of mu there are."""
        return self.mu.path if isinstance(self.mu, PathSection) else len(self.weights)

    @property
    def is_path(self) -> bool:
        """Whether there are several."""
        return self.weight_count > 1

    @property
    def rule(self) -> tuple[str, float]:
        """By which one of them is chosen, and the number of that rule."""
        return DEFAULT_RULE if self.choose is None else self.choose.rule

    def weights_in_words(self) -> str:
        """The values of mu."""
        if isinstance(self.mu, PathSection):
            return f"a path of {self.mu.path} values of mu"
        return f"mu = {', '.join(f'{weight:g}' for weight in self.weights)}"

    def own_code(self) -> dict[str, str]:
        """The classes of the user's own, by key."""
        named = {} if self.objective is None else {"problem.objective": self.objective}
        return named if self.regularizer in REGULARIZERS else named | {"problem.regularizer": self.regularizer}

    def left_out(self) -> set[str]:
        """What says nothing: the digest of a file without own code does not know that there could be some."""
        keys = ("choose", "objective", "objective_options", "regularizer_options", "features", "exclude")
        return {key for key in keys if not getattr(self, key)}


class ConstantStepSection(Section):
    """The same step size in every round."""

    rule: Literal["constant"]
    eta: Positive


class BarzilaiBorweinSection(Section):
    """The short Barzilai-Borwein step, with this one in the first round."""

    rule: Literal["bb"]
    first: PositiveOrAuto = 0.1


class ConstantSmoothingSection(Section):
    """The same sigma in every round."""

    rule: Literal["constant"]
    sigma: Sigma


class DecreasingSmoothingSection(Section):
    """sigma0 * k^(-exponent)."""

    rule: Literal["decreasing"]
    sigma0: Sigma = 1.0
    exponent: Annotated[float, Field(gt=0, le=4)] = 1 / 3


class SvdStart(Section):
    """The leading left singular vectors of A: for synthetic data, which every peer can make."""

    kind: Literal["svd"]


class RandomStart(Section):
    """A random point of the manifold, the same at every peer."""

    kind: Literal["random"]
    seed: Seed


class FileStart(Section):
    """A point of the manifold in a .npy file beside the topology file, the same at every peer."""

    kind: Literal["file"]
    path: FilePath


class DestinyStart(Section):
    """The leading left singular vectors of all data, found by the network: rounds of DESTINY, then a rotation."""

    kind: Literal["destiny"]
    seed: Seed
    max_rounds: Annotated[int, Field(ge=1, le=2**53)] = 10000
    tolerance: Positive = 1e-8


class LeadingStart(Section):
    """The leading left singular vectors of all data, found by exact sums; the seed says where they begin."""

    kind: Literal["leading"] = "leading"
    seed: Seed = 1


def _check_method(name: str) -> str:
    if name not in CHOICES:
        raise ValueError(f"must be one of {', '.join(CHOICES)}")
    return name


class Algorithm(Section):
    """How the agents go about it, and when they stop."""

    method: Annotated[str, AfterValidator(_check_method)] = UNNAMED
    preset: Literal["paper"] | None = None
    beta: PositiveOrAuto = 1.0
    max_rounds: Annotated[int, Field(ge=1, le=2**53)] | None = None
    tolerance: Annotated[float, Field(ge=0)] | None = None
    restarts: Annotated[int, Field(ge=1, le=1000)] = 1
    mixings: Annotated[int, Field(ge=1, le=10_000)] = 1
    masks: bool | None = None
    exchange: Literal["float64", "float32"] = "float64"
    start: Annotated[
        SvdStart | RandomStart | FileStart | DestinyStart | LeadingStart, Field(discriminator="kind")
    ] = LeadingStart()
    step: Annotated[ConstantStepSection | BarzilaiBorweinSection, Field(discriminator="rule")] = (
        BarzilaiBorweinSection(rule="bb", first="auto")
    )
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
    unencrypted: InTheClear | None = None
    problem: Problem
    algorithm: Algorithm
    peers: Annotated[list[PeerSection], Field(min_length=1)]


# The model that reads each place of the file.
Sections: TypeAlias = Mapping[tuple[str, ...], type[Section]]
SECTIONS: Sections = {
    (): TopologyFile,
    ("peers",): PeerSection,
    ("problem",): Problem,
    ("problem", "mu", "table"): PathSection,
    ("problem", "choose"): ChooseSection,
    ("problem", "data", "synthetic"): SyntheticData,
    ("problem", "data", "files"): FileData,
    ("algorithm",): Algorithm,
    ("algorithm", "start", "svd"): SvdStart,
    ("algorithm", "start", "random"): RandomStart,
    ("algorithm", "start", "file"): FileStart,
    ("algorithm", "start", "destiny"): DestinyStart,
    ("algorithm", "start", "leading"): LeadingStart,
    ("algorithm", "step", "constant"): ConstantStepSection,
    ("algorithm", "step", "bb"): BarzilaiBorweinSection,
    ("algorithm", "smoothing", "constant"): ConstantSmoothingSection,
    ("algorithm", "smoothing", "decreasing"): DecreasingSmoothingSection,
}
UNION_KEYS = frozenset({place[1] for place in SECTIONS if len(place) == 3} | {"weights", "beta", "first"})
UNION_TAGS = frozenset(
    {place[2] for place in SECTIONS if len(place) == 3} | {"word", "matrix", "number", "weight", "list"}
)

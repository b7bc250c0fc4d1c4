"""mu in a topology file: a number, or several of which one is chosen."""

from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from thanos_peer.topology.section import Section

# Of mu: squares of subgradients, and sums of those, must be finite.
LARGEST_WEIGHT = 1e100
# Values of mu in one run.
MOST_WEIGHTS = 32
# The sparsest answer that explains as much of what plain PCA does.
DEFAULT_RULE = ("of_pca", 0.9)


def _check_weight(mu: float) -> float:
    if mu > LARGEST_WEIGHT:
        raise ValueError(f"must be at most {LARGEST_WEIGHT:g}")
    return mu


def _is_list_or_table(value: Any) -> str:
    return "list" if isinstance(value, list) else "table" if isinstance(value, Mapping | Section) else "weight"


def _check_weights(weights: list[float]) -> list[float]:
    if not 2 <= len(set(weights)) == len(weights) <= MOST_WEIGHTS:
        raise ValueError(f"must be a valid number, or a list of 2 to {MOST_WEIGHTS} distinct ones")
    return weights


class PathSection(Section):
    """So many values of mu, from the largest useful one down, as the network finds them."""

    path: Annotated[int, Field(ge=2, le=MOST_WEIGHTS)]


class ChooseSection(Section):
    """Which answer of a path is the result: one rule."""

    nonzeros: Annotated[int, Field(ge=1)] | None = None
    per_component: Annotated[int, Field(ge=1)] | None = None
    variance: Annotated[float, Field(gt=0, le=1)] | None = None
    of_pca: Annotated[float, Field(gt=0, le=1)] | None = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if len(named := self.model_dump(exclude_none=True)) != 1:
            raise ValueError(f"must be one of {', '.join(sorted(type(self).model_fields))}; here are {len(named)}")
        return self

    @property
    def rule(self) -> tuple[str, float]:
        """Its name, and its number."""
        (rule,) = self.model_dump(exclude_none=True).items()
        return rule


Weight = Annotated[float, Field(ge=0), AfterValidator(_check_weight)]
PositiveWeight = Annotated[float, Field(gt=0), AfterValidator(_check_weight)]
Weights = Annotated[list[PositiveWeight], AfterValidator(_check_weights)]
AnyWeight: TypeAlias = Annotated[
    Annotated[Weight, Tag("weight")] | Annotated[Weights, Tag("list")] | Annotated[PathSection, Tag("table")],
    Discriminator(_is_list_or_table),
]

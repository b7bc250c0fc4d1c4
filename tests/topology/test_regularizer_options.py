"""The options of a regularizer follow from its row in the table."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from networks import make_topology, raw_topology

from thanos_peer.algorithm.regularizers import L1, REGULARIZERS, GroupL21
from thanos_peer.errors import TopologyError
from thanos_peer.rules import regularizer_of


@dataclass(frozen=True)
class Scaled(L1):
    options: ClassVar = {"factors": "a list of factors, one for each feature", "power": "a number"}
    aliases: ClassVar = ("scaled-l1",)

    @classmethod
    def make(cls, weight, options, *, n):
        if len(options["factors"]) != n:
            raise ValueError(f"factors must be {n} numbers")
        return cls(weight * sum(options["factors"]) ** options["power"])


SOUND = {"factors": [1.0] * 5 + [2.0], "power": 2}


@pytest.fixture(autouse=True)
def row(monkeypatch):
    monkeypatch.setitem(REGULARIZERS, "scaled", Scaled)


def raw_with(options, regularizer="scaled"):
    raw = raw_topology(n=6)
    raw["problem"] |= {"regularizer": regularizer, "mu": 0.5, "regularizer_options": options}
    return raw


@pytest.mark.parametrize("name", ["scaled", "scaled-l1"])
def test_options_reach_the_class_of_the_table(name):
    assert regularizer_of(make_topology(raw_with(SOUND, name)), mu=0.5) == Scaled(0.5 * 49)


def test_the_digest_covers_options():
    digests = {make_topology(raw_with(SOUND | {"power": power})).digest for power in (1, 2)}
    assert len(digests) == 2


@pytest.mark.parametrize("name", ["scaled", "scaled-l1"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"power": 2},
            '.factors: is missing: regularizer = "scaled" needs a list of factors, one for each feature',
        ),
        (SOUND | {"size": 3}, '.size = 3: unknown option of regularizer = "scaled" (known: factors, power)'),
        (SOUND | {"factors": [1.0]}, ": factors must be 6 numbers"),
    ],
)
def test_other_options_are_refused_by_their_name(name, options, said):
    with pytest.raises(TopologyError) as caught:
        make_topology(raw_with(options, name))
    assert str(caught.value).endswith(f"problem.regularizer_options{said}")


def test_all_mistakes_in_options_are_told_together():
    with pytest.raises(TopologyError) as caught:
        make_topology(raw_with({"size": 3}))
    assert len(str(caught.value).splitlines()) == 1 + 3


@pytest.mark.parametrize("name", ["l1", "l21", "l2,1"])
def test_a_regularizer_without_options_takes_none(name):
    with pytest.raises(TopologyError, match="leave it out with regularizer"):
        make_topology(raw_with({"factors": [1.0]}, name))


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([], "groups must be lists of features that are zero together"),
        (5, "groups must be lists of features"),
        ([0, 1], "groups[0] must be a list of at least one feature"),
        ([[0, 1], []], "groups[1] must be a list of at least one feature"),
        ([[0, 1], [2, 6]], "groups[1] has 6, which is no feature: they are 0 to 5"),
        ([[-1]], "groups[0] has -1, which is no feature"),
        ([[True]], "groups[0] has True, which is no feature"),
        ([["gene"]], "groups[0] has 'gene', which is no feature"),
        ([[0, 1], [2, 1]], "groups[1] has feature 1, which is in groups[0] already"),
        ([[3, 3]], "groups[0] has feature 3, which is in groups[0] already"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups, said):
    with pytest.raises(TopologyError) as caught:
        make_topology(raw_with({"groups": groups}, "group-l21"))
    assert f"problem.regularizer_options: {said}" in str(caught.value)


@pytest.mark.parametrize("name", ["group-l21", "group-l2,1"])
def test_a_feature_in_no_group_is_a_group_of_its_own(name):
    g = regularizer_of(make_topology(raw_with({"groups": [[4, 1], [2]]}, name)), mu=0.5)
    assert g == GroupL21(0.5, (2, 0, 1, 3, 0, 4))

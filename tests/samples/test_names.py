import pytest
from hypothesis import given
from hypothesis import strategies as st

from thanos_peer.errors import DataFileError
from thanos_peer.protocol.handshake import difference_of_digests
from thanos_peer.samples import check_same_features, digests_so_far, features_digest
from thanos_peer.samples.names import check_names

NAMES = st.lists(st.text(max_size=5), max_size=5)


@given(one=NAMES, other=NAMES)
def test_the_digest_tells_names_and_orders_apart(one, other):
    assert (features_digest(one) == features_digest(other)) == (one == other)
    assert len(features_digest(one)) == 64


@given(one=NAMES, other=NAMES)
def test_digests_tell_another_order_from_other_names(one, other):
    told = difference_of_digests(features_digest(one), features_digest(other))
    if one == other:
        assert told is None
    else:
        assert told.startswith("order of features" if sorted(one) == sorted(other) else "names of features")
    assert difference_of_digests(features_digest(one), "") is None
    assert difference_of_digests("", features_digest(one)) is None


@given(one=NAMES, other=NAMES)
def test_the_first_digest_so_far_that_differs_is_at_the_first_difference(one, other):
    pairs = zip(digests_so_far(one), digests_so_far(other), strict=False)
    same = [mine == theirs for mine, theirs in pairs]
    assert same == [one[: place + 1] == other[: place + 1] for place in range(len(same))]
    assert not one or list(digests_so_far(one))[-1].startswith(features_digest(one)[:32])


def test_without_names_the_digest_is_empty():
    assert features_digest(None) == ""


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "", "b"], "has no name for column 2; name it, or leave it out if it only numbers the rows"),
        (["a", "b", "a"], "has the name 'a' in columns 1 and 3; names are unique"),
        (["a", "b\n"], r"has the name 'b\n' in column 2; a name is of at most 200 printable characters"),
        (["x" * 201], f"has the name '{'x' * 56}... in column 1; a name is of at most 200 printable characters"),
    ],
)
def test_a_name_that_is_not_allowed_is_shown(names, message):
    with pytest.raises(DataFileError) as caught:
        check_names(names)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ("acb", "has the same features in another order: column 2 is 'c'; must be 'b', as in theirs.csv"),
        ("abd", "has other features: column 3 is 'd'; must be 'c', as in theirs.csv"),
        ("ab", "has 2 columns; must have 3, as in theirs.csv: it lacks 'c'"),
    ],
)
def test_the_first_difference_of_features_is_named(ours, message):
    with pytest.raises(DataFileError) as caught:
        check_same_features(tuple(ours), tuple("abc"), as_in="theirs.csv")
    assert str(caught.value) == message


@pytest.mark.parametrize("ours", [None, ("a", "b", "c")])
def test_the_same_names_or_none_are_fine(ours):
    check_same_features(ours, ("a", "b", "c"))
    check_same_features(("a", "b", "c"), ours)

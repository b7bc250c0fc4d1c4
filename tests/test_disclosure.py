"""What a site reveals, in words: held against what the graph and the phases say."""

from pathlib import Path

import pytest
from cli.commands import call
from networks import raw_topology, with_keys

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.disclosure import OF_MIXING, OF_OWN_OBJECTIVES, SUMMED, exposure_facts, page, warnings
from thanos_peer.phases.masking import NAME as MASKS
from thanos_peer.preparation import outline
from thanos_peer.topology import parse
from thanos_peer.topology.sections import IN_THE_CLEAR

LEADING, RANDOM, FOUND = {"kind": "leading"}, {"kind": "random", "seed": 1}, {"kind": "destiny", "seed": 1}


def of_files(
    family="path",
    d=5,
    *,
    method="gram",
    start=LEADING,
    has_keys=True,
    edges=None,
    masks=None,
    unencrypted=None,
    **problem,
):
    raw = raw_topology(family, d, **({} if edges is None else {"edges": edges}))
    raw["problem"] |= {"data": {"kind": "files", "center": True, "scale": True, "overall": "auto"}} | problem
    raw["algorithm"] = {"method": method, "start": start} | ({"preset": "paper"} if method == "thanos" else {})
    if masks is not None:
        raw["algorithm"]["masks"] = masks
    if unencrypted is not None:
        raw["unencrypted"] = unencrypted
    raw["peers"] = [peer | {"data": f"{peer['id']}.npy"} for peer in raw["peers"]]
    return parse(with_keys(raw) if has_keys else raw, file=Path("net.toml"), data_of=())


def rows(topology, agent, title):
    """The rows of the first table under a title of the page."""
    lines = page(topology, agent).split(f"## {title}\n\n")[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("start", [LEADING, RANDOM, FOUND], ids=lambda start: start["kind"])
@pytest.mark.parametrize("method", METHODS)
def test_every_phase_of_every_method_says_what_is_sent_to_whom(method, start):
    smooth = {"regularizer": "none", "mu": 0.0} if METHODS[method].is_for_smooth else {}
    topology = of_files(method=method, start=start, **smooth)
    plan, sent = outline(topology), rows(topology, 0, "What leaves this site")
    assert [row[0] for row in sent] == [phase.name for phase in plan.phases]
    for name, own, who, _ in sent:
        if name in (*plan.mixing, MASKS):
            assert (name in SUMMED, who) == (False, "its neighbors: peer 1")
        else:
            table = SUMMED | OF_MIXING if METHODS[method].mixes else SUMMED
            expected = METHODS[name].content(is_pca=True) if name in METHODS else table[name]
            assert (own, who) == (expected.own, "peer 1, masked" if sent[0][0] == MASKS else "peer 1")


def test_own_objectives_have_words_of_their_own():
    data = {"kind": "files"}
    topology = of_files(method="proximal", start=RANDOM, objective="mine:Quartic", data=data)
    size, method, verdict = [row[1] for row in rows(topology, 0, "What leaves this site")[1:]]
    assert [size, verdict] == [OF_OWN_OBJECTIVES[name].own for name in ("size", "verdict")]
    assert method == METHODS["proximal"].content(is_pca=False).own


def test_the_page_names_who_learns_what_on_a_path():
    found = dict(rows(of_files(), 1, "Who learns what"))
    assert found == {
        "peer 2, alone": "the sums over peers 0, 1 together",
        "peer 3, alone": "the sums over peers 0, 1, 2 together",
        "any other peer, alone": "nothing but the result: the sums over all",
        "peers 0, 2, together": "**its own numbers**: they are all its neighbors",
        "all other peers, together": "**its own numbers**: they are the result less theirs",
        "a stranger on the network": "who speaks with whom, when and how much",
    }
    assert dict(rows(of_files(), 0, "Who learns what"))["peer 1, alone"] == "**its own numbers**"


def test_without_keys_a_parent_learns_what_is_below_it_and_a_stranger_all():
    ring = of_files("ring", 6, has_keys=False)
    found = dict(rows(ring, 3, "Who learns what"))
    assert found["peer 2, alone"] == "**its own numbers**"
    assert found["a stranger on the network"] == "nothing: no link leaves the host"
    found = dict(rows(ring, 2, "Who learns what"))
    assert found["peer 1, alone"] == "the sums over peers 2, 3 together"
    assert found["peers 1, 3, together"] == "**its own numbers**: it sums with no other"
    assert rows(ring, 2, "What leaves this site")[0][2] == "peer 1, in one sum with those below it"
    assert "masks need keys" in page(ring, 2)
    assert "leaf its own numbers; sums are not masked: masks need keys" in exposure_facts(ring)["neighbors learn"]
    assert "peer 2, alone" not in dict(rows(of_files("ring", 6), 3, "Who learns what"))


def test_where_links_are_in_the_clear_a_stranger_hears_what_neighbors_hear():
    topology = of_files("ring", 6, has_keys=False, unencrypted=IN_THE_CLEAR)
    assert dict(rows(topology, 3, "Who learns what"))["a stranger on the network"] == "all that a neighbor hears"


def test_that_the_file_wants_no_masks_is_not_said_to_be_for_want_of_keys():
    topology = of_files("ring", 6, masks=False)
    assert "| sums | **not masked**: algorithm.masks is false |" in page(topology, 0)
    assert "algorithm.masks is false" in exposure_facts(topology)["neighbors learn"]
    assert "need keys" not in page(topology, 0)


def test_one_peer_alone_and_samples_from_a_seed_have_nothing_to_reveal():
    one = of_files(d=1)
    assert rows(one, 0, "Who learns what") == [["no other peer", "nothing"]]
    assert {row[2] for row in rows(one, 0, "What leaves this site")} == {"no other peer"}
    assert "so nothing is sent" in page(one, 0)
    assert exposure_facts(one) == {"neighbors learn": "nothing: there is one peer only"}
    assert warnings(one, 0, 1) == []
    made = parse(with_keys(raw_topology("ring", 4)), file=Path("net.toml"))
    assert [row[0] for row in rows(made, 0, "Who learns what")] == ["all who have the topology file"]
    assert exposure_facts(made) == {}


def test_a_start_that_mixes_is_said_to_though_the_method_sums():
    topology = of_files("ring", 5, start=FOUND)
    assert "| method | gram: mixes in phase subspace |" in page(topology, 0)
    assert "any peer that is no neighbor, alone" in dict(rows(topology, 0, "Who learns what"))
    way_out = 'with start = { kind = "leading" } every phase sums'
    assert way_out in exposure_facts(topology)["neighbors learn"]
    assert way_out in warnings(topology, 0, 30)[0]
    both = of_files("ring", 5, method="thanos", start=FOUND)
    assert 'with method = "auto" and start = { kind = "leading" } every' in exposure_facts(both)["neighbors learn"]


def test_of_own_objectives_that_mix_no_second_moments_are_spoken_of():
    topology = of_files(
        "ring", 4, method="subgradient", start=RANDOM, objective="mine:Quartic", data={"kind": "files"}
    )
    found = dict(rows(topology, 0, "Who learns what"))
    assert found["peer 1, alone"].startswith("can work out gradients of its objective")
    assert "second moments" not in page(topology, 0) + str(exposure_facts(topology)) + str(
        warnings(topology, 0, 30)
    )
    assert not any("follow from" in sentence for sentence in warnings(topology, 0, 1))


def test_sums_after_a_method_that_mixes_from_the_first_round_on_are_masked_too():
    topology = of_files(
        "ring", 4, method="subgradient", start=RANDOM, objective="mine:Quartic", data={"kind": "files"}
    )
    assert "| sums | masked |" in page(topology, 0)
    assert rows(topology, 1, "What leaves this site")[-1][2] == "peer 0, in one sum with those below it, masked"


def test_how_many_samples_follow_depends_on_whether_their_sums_are_told():
    plain = of_files("path", 4, start=RANDOM, data={"kind": "files", "overall": "auto"})
    assert not any("follow" in sentence for sentence in warnings(plain, 0, 2))
    assert any("1 sample(s) only" in sentence for sentence in warnings(plain, 0, 1))
    assert "A single sample follows from them up to its sign." in page(plain, 0)
    assert "One sample, or two, follow" in page(of_files(), 0)


def test_where_missing_values_are_filled_in_their_numbers_are_told():
    gaps = of_files(data={"kind": "files", "missing": "mean"})
    assert [
        "mean",
        "its number of samples, how many values of each feature it has, and the sum of each feature",
    ] in [list(row[:2]) for row in rows(gaps, 0, "What leaves this site")]
    assert "One sample, or two, follow" in page(gaps, 0)


@pytest.mark.parametrize(("method", "has_keys"), [("gram", True), ("gram", False), ("drgta", True)])
def test_of_two_peers_each_learns_all(method, has_keys):
    topology = of_files(d=2, method=method, has_keys=has_keys)
    assert dict(rows(topology, 0, "Who learns what"))["peer 1, alone"].startswith("**its own numbers**")
    assert "no masks help" in exposure_facts(topology)["exposed"]


def test_methods_that_mix_are_said_to_tell_every_neighbor():
    topology = of_files("ring", 4, method="drgta")
    found = dict(rows(topology, 1, "Who learns what"))
    assert all("second moments" in found[f"peer {j}, alone"] for j in (0, 2))
    assert "any one peer, alone" not in found
    assert "in phase drgta" in warnings(topology, 1, 30)[0]
    assert "from phase drgta: the second moments of its samples" in exposure_facts(topology)["neighbors learn"]


def test_a_site_is_warned_of_what_is_so_and_of_nothing_else():
    ring, path = of_files("ring", 5), of_files()
    assert warnings(ring, 0, 2) == warnings(path, 0, None) == []
    assert warnings(path, 0, 30) == [
        "peer 1 alone learns the sums over peer 0",
        "peer 2 alone learns the sums over peers 0, 1",
        "peer 3 alone learns the sums over peers 0, 1, 2",
    ]
    assert warnings(path, 0, 2)[-1] == "this peer has 2 sample(s) only, which follow from its own sums"
    assert warnings(of_files("ring", 5, has_keys=False), 2, 30) == [
        "peer 1 alone learns the sums over peer 2, as sums are not masked",
        "peer 0 alone learns the sums over peers 1, 2, as sums are not masked",
        "peer 4 alone learns the sums over peers 0, 1, 2, as sums are not masked",
    ]


def test_check_names_who_is_exposed_and_edges_that_help():
    facts = exposure_facts(of_files())
    assert facts["exposed"].endswith("0 by 1, 4 by 3")
    assert facts["divided by"].startswith("peers that alone learn the sum of each part: 1 (1 and 3), 2 (2 and 2)")
    assert facts["edges that help"].startswith("[0, 4]: ")
    assert list(exposure_facts(of_files("ring", 5))) == ["neighbors learn"]
    # Of methods that mix one neighbor learns all, and a further edge is a further neighbor.
    assert list(exposure_facts(of_files(method="drgta", regularizer="none", mu=0.0))) == ["neighbors learn"]


def test_edges_that_help_leave_no_peer_that_divides_the_graph():
    # Two triangles with a peer in common: each has two neighbors, and that peer learns two sums.
    bow = of_files("path", 5, edges=[[0, 1], [1, 2], [0, 2], [2, 3], [3, 4], [2, 4]])
    facts = exposure_facts(bow)
    assert "exposed" not in facts
    assert facts["divided by"].startswith("peers that alone learn the sum of each part: 2 (2 and 2)")
    assert facts["edges that help"].startswith("[0, 3]: with them no peer alone learns")


def test_the_agreement_is_over_ids_keys_and_masks_and_the_digest():
    raw = raw_topology("ring", 4)
    keyed = with_keys(raw)
    swapped = [
        peer | {"public_key": keyed["peers"][1 - peer["id"]]["public_key"]} if peer["id"] < 2 else peer
        for peer in keyed["peers"]
    ]
    unmasked = keyed | {"algorithm": keyed["algorithm"] | {"masks": False}}
    moved = keyed | {
        "peers": [peer | {"address": f"tcp://127.0.0.1:{9000 + peer['id']}"} for peer in keyed["peers"]][::-1]
    }
    other = keyed | {"name": "other"}
    topologies = [
        parse(each, file=Path("net.toml")) for each in (raw, keyed, keyed | {"peers": swapped}, unmasked, other)
    ]
    assert len({topology.agreement for topology in topologies}) == 5
    assert len({topology.digest for topology in topologies}) == 2
    assert parse(moved, file=Path("net.toml")).agreement == topologies[1].agreement
    assert f"| agreement | `{topologies[1].agreement}` |" in page(topologies[1], 0)


def test_the_command_prints_or_writes_the_page_with_the_rules_of_the_site(tmp_path):
    file = tmp_path / "net.toml"
    call("topology", "new", "ring", "--peers", 4, "-o", file)
    (tmp_path / "site.toml").write_text("no_sole_neighbor = true\n", encoding="utf-8")
    printed = call("disclose", file, "--id", 2, "--policy", tmp_path / "site.toml").stdout
    assert printed.startswith("# What peer 2 reveals in the run ")
    assert "| rules of this site | no_sole_neighbor = true |" in printed
    call("disclose", file, "--id", 2, "--policy", tmp_path / "site.toml", "-o", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == printed
    assert "has the peers 0 to 3" in call("disclose", file, "--id", 7, code=3).stderr

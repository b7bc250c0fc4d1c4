"""What a site reveals, in words: held against what the graph and the phases say."""

from pathlib import Path

import pytest
from cli.commands import call
from networks import raw_topology, with_keys

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.disclosure import OF_OWN_OBJECTIVES, SUMMED, exposure_facts, page, warnings
from thanos_peer.phases.masking import NAME as MASKS
from thanos_peer.preparation import outline
from thanos_peer.topology import parse

LEADING, RANDOM, FOUND = {"kind": "leading"}, {"kind": "random", "seed": 1}, {"kind": "destiny", "seed": 1}


def of_files(family="path", d=5, *, method="gram", start=LEADING, has_keys=True, edges=None, **problem):
    raw = raw_topology(family, d, **({} if edges is None else {"edges": edges}))
    raw["problem"] |= {"data": {"kind": "files", "center": True, "scale": True, "overall": "auto"}} | problem
    raw["algorithm"] = {"method": method, "start": start} | ({"preset": "paper"} if method == "thanos" else {})
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
            expected = METHODS[name].content(is_pca=True) if name in METHODS else SUMMED[name]
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
    found = dict(rows(of_files("ring", 6, has_keys=False), 3, "Who learns what"))
    assert found["peer 2, alone"] == "**its own numbers**"
    assert found["a stranger on the network"] == "all that a neighbor hears"
    assert "peer 2, alone" not in dict(rows(of_files("ring", 6), 3, "Who learns what"))


@pytest.mark.parametrize(("method", "has_keys"), [("gram", True), ("gram", False), ("drgta", True)])
def test_of_two_peers_each_learns_all(method, has_keys):
    topology = of_files(d=2, method=method, has_keys=has_keys)
    assert dict(rows(topology, 0, "Who learns what"))["peer 1"].startswith("**its own numbers**")
    assert "no masks help" in exposure_facts(topology)["exposed"]


def test_methods_that_mix_are_said_to_tell_every_neighbor():
    topology = of_files("ring", 4, method="drgta")
    found = dict(rows(topology, 1, "Who learns what"))
    assert all("second moments" in found[f"peer {j}, alone"] for j in (0, 2))
    assert "any one peer, alone" not in found
    assert "in phase drgta" in warnings(topology, 1, 30)[0]
    assert "second moments of a peer's samples, from phase drgta" in exposure_facts(topology)["neighbors learn"]


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
        "peer 1 alone learns the sums over peer 2, as sums are not masked in this run"
    ]


def test_check_names_who_is_exposed_and_edges_that_help():
    facts = exposure_facts(of_files())
    assert facts["exposed"].endswith("0 by 1, 4 by 3")
    assert facts["divided by"].startswith("peers that alone learn the sum of each part: 1 (1 and 3), 2 (2 and 2)")
    assert facts["edges that help"].startswith("[0, 4]: ")
    assert list(exposure_facts(of_files("ring", 5))) == ["neighbors learn"]


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

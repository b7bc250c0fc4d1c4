"""Rules that a site sets for itself: a run that breaks one never hears of it."""

import json
import re

import pytest
from cli.commands import call
from peer.sites import files_topology, listening, policy_in
from processes import give_keys, write_topology

from thanos_peer.errors import PolicyError, TopologyError
from thanos_peer.storage.checkpoint import checkpoints_in
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import load
from thanos_peer.topology.policy import RULES, Policy
from thanos_peer.topology.policy_files import policy_of_site, read_policy

ALL_RULES = """
least_samples = 4
largest_share = 0.5
no_sole_neighbor = true
no_cut_vertex = true
least_coalition = 2
masked_sums = true
encryption = true
no_code_of_others = true
"""


def start(topology, agent, directory, text, *options, code):
    words = ["start", "--id", agent, "--topology", topology.file, "--out", directory / "run"]
    return call(*words, "--policy", policy_in(directory, text), *options, code=code).stderr


def test_a_run_that_keeps_all_rules_is_taken_part_in(tmp_path):
    topology = files_topology(tmp_path)
    with listening(topology, 0) as connections:
        # None answers, so it gives up; but it has spoken.
        words = start(topology, 0, tmp_path, ALL_RULES, "--give-up-after", 1, code=6)
        assert connections() == 2
    assert "not let" not in words
    assert set(RULES) == set(Policy.model_fields)


MIXES = {"method": "drgta"}
START_MIXES = {"start": {"kind": "destiny", "seed": 1}}
UNMASKED = {"masks": False}
ONE_NEIGHBOR = r"in phase drgta each neighbor alone can work out .*; with method = \"auto\" every phase sums"
NO_MASKS = "sums are not masked, as algorithm.masks is false"
IN_CLEAR = {"has_keys": False, "is_clear": True}
HEARD = "a listener on the way hears"
# The peer, the rule, what is wrong, and of which topology. On the ring of four peer 0 is the root, and peer 2 is a
# leaf below peer 1.
BROKEN = [
    (0, "least_samples = 6", "this site has 5", {}),
    (0, "largest_share = 0.3", r"peer 3 has 0\.308 of all samples", {}),
    (0, "largest_share = 0.9", "does not say how many samples peer 0 has", {"counts": False}),
    (
        0,
        "no_sole_neighbor = true",
        "peer 1 alone learns its own numbers: it is its one neighbor",
        {"family": "path"},
    ),
    (0, "no_sole_neighbor = true", ONE_NEIGHBOR, MIXES),
    (0, "no_sole_neighbor = true", 'subspace each .* with start = { kind = "leading" } every', START_MIXES),
    (2, "no_sole_neighbor = true", f"peer 1 alone learns its own numbers: {NO_MASKS}", UNMASKED),
    (0, "no_sole_neighbor = true", "of two peers each one learns", {"family": "path", "sizes": (5, 6)}),
    (0, "no_sole_neighbor = true", HEARD, IN_CLEAR),
    (0, "no_cut_vertex = true", "peer 2 alone learns the sum over peers 0, 1$", {"family": "path", "edges": True}),
    (0, "no_cut_vertex = true", ONE_NEIGHBOR, MIXES),
    (0, "no_cut_vertex = true", f"peer 1 alone learns the sum over peers 0, 3: {NO_MASKS}", UNMASKED),
    (0, "no_cut_vertex = true", HEARD, IN_CLEAR),
    (
        0,
        "least_coalition = 3",
        "peers 1, 3 together learn its own numbers, 2 in all: they are all its neighbors",
        {},
    ),
    (0, "least_coalition = 2", ONE_NEIGHBOR, MIXES),
    (2, "least_coalition = 2", f"peer 1 alone learns its own numbers: {NO_MASKS}", UNMASKED),
    (1, "least_coalition = 3", f"peers 0, 2 together learn its own numbers, 2 in all: {NO_MASKS}", UNMASKED),
    (0, "least_coalition = 2", HEARD, IN_CLEAR),
    (0, "masked_sums = true", r"sums are not masked, as masks need keys \(`thanos-peer keys", {"has_keys": False}),
    (0, "masked_sums = true", NO_MASKS, UNMASKED),
    (0, "masked_sums = true", "in phase drgta neighbors are told more than sums", MIXES),
    (0, "encryption = true", "has no keys", {"has_keys": False}),
]


def in_short(part):
    return part.partition(" =")[0] if isinstance(part, str) and " = " in part[:25] else ""


@pytest.mark.parametrize(("agent", "rule", "fault", "options"), BROKEN, ids=in_short)
def test_each_rule_ends_a_peer_before_it_says_a_word(tmp_path, agent, rule, fault, options):
    topology = topology_of(tmp_path, options)
    with listening(topology, agent) as connections:
        words = start(topology, agent, tmp_path, rule, "--give-up-after", 1, code=3)
        assert connections() == 0
    named = f"Error: {tmp_path / 'site.toml'} does not let peer {agent} take part in {topology.file}: {rule}: "
    assert re.search(re.escape(named) + ".*" + fault, words, re.MULTILINE)
    assert words.count("\n") == 1
    assert not (tmp_path / "run").exists()


def topology_of(directory, options):
    """Of some data files; on the path with `edges` peers 0 and 1 hang on peer 2 together."""
    options = dict(options)
    if not options.pop("edges", False):
        return files_topology(directory, **options)
    topology = files_topology(directory, **options, has_keys=False)
    text = topology.file.read_text(encoding="utf-8").replace("edges = [", "edges = [[0, 2], ")
    topology.file.write_text(text, encoding="utf-8")
    return give_keys(load(topology.file))


def test_every_rule_has_a_case_that_shows_that_nothing_was_sent():
    assert {rule.partition(" ")[0] for _, rule, _, _ in BROKEN} | {"no_code_of_others"} == set(RULES)


def test_code_of_others_is_refused_though_it_is_allowed_elsewhere(tmp_path):
    def own(raw):
        raw["problem"] |= {"objective": "mine:Quartic"}
        raw["problem"]["data"].pop("scale", None)
        raw["algorithm"] = {"method": "proximal", "start": {"kind": "random", "seed": 1}}

    topology = write_topology(tmp_path / "net.toml", change=own, has_keys=True)
    with listening(topology, 0) as connections:
        words = start(topology, 0, tmp_path, "no_code_of_others = true", "--allow-code", "mine", code=3)
        assert connections() == 0
    assert "no_code_of_others = true: problem.objective is mine:Quartic" in words


def test_one_peer_alone_keeps_all_rules_on_who_learns_what(tmp_path):
    topology = files_topology(tmp_path, "path", (5,), has_keys=False)
    rules = ALL_RULES.replace("largest_share = 0.5", "")
    start(topology, 0, tmp_path, rules, code=0)


def test_no_neighbor_hears_that_data_is_unreadable_before_the_samples_are_counted(tmp_path):
    topology = files_topology(tmp_path)
    topology.data_file(0).write_bytes(b"no samples")
    with listening(topology, 0) as connections:
        words = start(topology, 0, tmp_path, "least_samples = 2", "--give-up-after", 1, code=3)
        assert connections() == 0
        # Without such a rule they are told, and need not wait.
        start(topology, 0, tmp_path, "encryption = true", "--give-up-after", 1, code=3)
        assert connections() == 2
    assert str(topology.data_file(0)) in words


def test_no_neighbor_hears_of_a_damaged_state_before_the_samples_are_counted(tmp_path):
    topology, state = files_topology(tmp_path), tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "0-000000000005.ckpt").write_bytes(b"")
    assert checkpoints_in(state, 0)
    options = ["--state", state, "--give-up-after", 1]
    with listening(topology, 0) as connections:
        start(topology, 0, tmp_path, "least_samples = 6", *options, code=3)
        assert connections() == 0
        # Of a run that keeps the rules they are told.
        start(topology, 0, tmp_path, "least_samples = 5", *options, code=8)
        assert connections() == 2


def test_all_broken_rules_are_named_together(tmp_path):
    topology = files_topology(tmp_path, "path", has_keys=False)
    with pytest.raises(PolicyError, match="5 rules are broken") as caught:
        policy_of_site([policy_in(tmp_path, ALL_RULES)]).check(topology, 0, mixing=())
    named = [line.split()[0] for line in str(caught.value).splitlines()[1:]]
    assert named == ["no_sole_neighbor", "no_cut_vertex", "least_coalition", "masked_sums", "encryption"]


def test_mistakes_in_a_policy_are_named_with_what_is_known(tmp_path):
    with pytest.raises(TopologyError) as caught:
        read_policy(policy_in(tmp_path, 'least_sample = 3\nlargest_share = 2.0\nencryption = "yes"'))
    words = str(caught.value)
    assert "site.toml: 3 mistakes" in words
    assert 'least_sample = 3: unknown key; did you mean "least_samples"?' in words
    assert "largest_share = 2.0: must be less than or equal to 1" in words


def test_what_was_agreed_is_in_the_results_and_samples_are_as_the_file_says(tmp_path):
    topology = files_topology(tmp_path, "path", (5,))
    rules = "least_samples = 5\nlargest_share = 1.0\nencryption = true"
    start(topology, 0, tmp_path, rules, code=0)
    facts = json.loads(PeerFiles(tmp_path / "run", topology, 0).facts.read_text(encoding="utf-8"))
    assert facts["policy"] == {"least_samples": 5, "largest_share": 1.0, "encryption": True}
    assert (facts["has_keys"], facts["masks_sums"]) == (True, False)
    page = call("disclose", topology.file, "--id", 0, "--policy", tmp_path / "site.toml").stdout
    assert f"| agreement | `{facts['agreement']}` |" in page
    other = topology.file.read_text(encoding="utf-8").replace("samples = 5", "samples = 9")
    topology.file.write_text(other, encoding="utf-8")
    words = call("start", "--id", 0, "--topology", topology.file, "--out", tmp_path / "other", code=3).stderr
    assert "has 5 samples; the topology file says samples = 9 of it" in words
    words = call("topology", "check", topology.file, code=3).stderr
    assert "has 5 samples; samples = 9 of this peer says another number" in words

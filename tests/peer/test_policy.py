"""Rules that a site sets for itself: a run that breaks one never hears of it."""

import contextlib
import json
import re
import socket

import pytest
import tomlkit
from cli.commands import call
from processes import give_keys, write_topology
from uneven import LEADING, PREPARED, raw_with_parts, some_parts

from thanos_peer.errors import PolicyError, TopologyError
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import load
from thanos_peer.topology.policy import RULES, Policy, read_policy

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


def files_topology(directory, family="ring", sizes=(5, 6, 7, 8), *, method="gram", has_keys=True, counts=True):
    raw = raw_with_parts(directory, some_parts(sizes), family, data=PREPARED, start=LEADING)
    raw["algorithm"] = {"method": method, "start": LEADING}
    if counts:
        raw["peers"] = [peer | {"samples": size} for peer, size in zip(raw["peers"], sizes, strict=True)]
    (directory / "net.toml").write_text(tomlkit.dumps(raw), encoding="utf-8")
    topology = load(directory / "net.toml")
    return give_keys(topology) if has_keys else topology


def policy_in(directory, text):
    file = directory / "site.toml"
    file.write_text(text, encoding="utf-8")
    return file


@contextlib.contextmanager
def listening(topology, agent):
    """A listener at the address of each neighbor; yields how many connections have come there."""
    with contextlib.ExitStack() as stack:
        ports = [int(topology.peers[j].address.rpartition(":")[2]) for j in topology.graph.neighbors[agent]]
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", port))) for port in ports]

        def count():
            found = 0
            for listener in listeners:
                listener.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    stack.enter_context(listener.accept()[0])
                    found += 1
            return found

        yield count


def start(topology, agent, directory, text, *options, code):
    words = ["start", "--id", agent, "--topology", topology.file, "--out", directory / "run"]
    return call(*words, "--policy", policy_in(directory, text), *options, code=code).stderr


def test_a_run_that_keeps_all_rules_is_taken_part_in(tmp_path):
    topology = files_topology(tmp_path)
    with listening(topology, 0) as connections:
        # None answers, so it gives up; but it has spoken.
        words = start(topology, 0, tmp_path, ALL_RULES, "--give-up-after", 1, code=6)
        assert connections() == 2
    assert "does not let" not in words
    assert set(RULES) == set(Policy.model_fields)


BROKEN = {
    "least_samples = 6": ("this site has 5", {}),
    "largest_share = 0.3": (r"peer 3 has 0\.308 of all samples", {}),
    "largest_share = 0.9": ("does not say how many samples peer 0 has", {"counts": False}),
    "no_sole_neighbor = true": ("its one neighbor is peer 1", {"family": "path"}),
    "no_cut_vertex = true": ("peer 1 learns the sum over peer 0 apart", {"family": "path"}),
    "least_coalition = 3": ("its neighbors are 2, and together they learn its own numbers", {}),
    "masked_sums = true": ("sums are not masked in this run", {"has_keys": False}),
    "masked_sums = true ": ("in phase drgta neighbors are told more than sums", {"method": "drgta"}),
    "encryption = true": ("has no keys", {"has_keys": False}),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_ends_a_peer_before_it_says_a_word(tmp_path, rule):
    fault, options = BROKEN[rule]
    topology = files_topology(tmp_path, **options)
    with listening(topology, 0) as connections:
        words = start(topology, 0, tmp_path, rule, "--give-up-after", 1, code=3)
        assert connections() == 0
    named = f"Error: {tmp_path / 'site.toml'} does not let peer 0 take part in {topology.file}: {rule.strip()}: "
    assert re.search(re.escape(named) + ".*" + fault, words)
    assert words.count("\n") == 1
    assert not (tmp_path / "run" / "peers" / "0.npz").exists()


def test_code_of_others_is_refused_though_it_is_allowed_elsewhere(tmp_path):
    def own(raw):
        raw["problem"] |= {"objective": "mine:Quartic"}
        raw["problem"]["data"].pop("scale", None)
        raw["algorithm"] = {"method": "proximal", "start": {"kind": "random", "seed": 1}}

    topology = write_topology(tmp_path / "net.toml", change=own, has_keys=True)
    words = start(topology, 0, tmp_path, "no_code_of_others = true", "--allow-code", "mine", code=3)
    assert "no_code_of_others = true: problem.objective is mine:Quartic" in words


def test_all_broken_rules_are_named_together(tmp_path):
    topology = files_topology(tmp_path, "path", has_keys=False)
    with pytest.raises(PolicyError, match="5 rules are broken") as caught:
        read_policy(policy_in(tmp_path, ALL_RULES)).check(topology, 0, mixing=())
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
    other = topology.file.read_text(encoding="utf-8").replace("samples = 5", "samples = 9")
    topology.file.write_text(other, encoding="utf-8")
    words = call("start", "--id", 0, "--topology", topology.file, "--out", tmp_path / "other", code=3).stderr
    assert "has 5 samples; the topology file says samples = 9 of it" in words
    words = call("topology", "check", topology.file, code=3).stderr
    assert "has 5 samples; samples = 9 of this peer says another number" in words

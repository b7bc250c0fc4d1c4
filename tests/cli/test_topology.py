import re
import sys
import tomllib

import numpy as np
import pytest
from cli.commands import call

from thanos_peer.algorithm.methods import MIXING, SUMMING
from thanos_peer.problem import build
from thanos_peer.simulate import StackedNetwork
from thanos_peer.topology import families, load

PEERS = {"grid": 12, "torus": 12, "geometric": 10}


def facts_of(file, *options):
    lines = call("topology", "check", file, *options).stdout.splitlines()
    return {line[:24].strip(): line[24:] for line in lines}


def put(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return file


def with_files(file, d=3):
    """The topology with a data file per peer."""
    text = file.read_text()
    head, tail = text.split("[problem.data]\n")
    tail = tail[tail.index("\n[algorithm]") :].replace('{ kind = "svd" }', '{ kind = "random", seed = 1 }')
    text = f'{head}[problem.data]\nkind = "files"\n{tail}'
    for i in range(d):
        text = text.replace(f"id = {i}\n", f'id = {i}\ndata = "{i}.npy"\n')
        np.save(file.parent / f"{i}.npy", np.random.default_rng(i).standard_normal((4, 6)))
    file.write_text(text)
    return file


@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_new_topology_of_every_family_can_be_checked_and_simulated(family, new, tmp_path):
    d = PEERS.get(family, 8)
    file = new(family, "-d", d, "--rounds", 20)
    facts = facts_of(file)
    assert (facts["name"], facts["peers"]) == (f"{family}-{d}", str(d))
    summary = call("simulate", file, "--out", tmp_path / "run").stdout
    assert summary.startswith(f"{family}-{d}: {d} agents, 20 rounds")


def test_without_an_output_the_file_goes_to_stdout():
    result = call("topology", "new", "star", "-d", 4)
    assert tomllib.loads(result.stdout)["edges"] == [[0, 1], [0, 2], [0, 3]]
    assert result.stderr == ""


def test_every_option_of_a_new_topology_has_its_effect(new):
    file = new(
        *("erdos-renyi", "-d", 6, "--name", "mine", "--seed", 9, "--probability", 0.9, "--regularizer", "l21"),
        *("--mu", 0.25, "--samples", 33, "--sigma", 0.125, "--rounds", 77, "--tolerance", 0.5),
        *("--host", "h.example.org", "--first-port", 9000),
    )
    topology = load(file)
    problem, algorithm = topology.problem, topology.algorithm
    assert topology.name == "mine"
    assert topology.graph.edges == tuple(families.erdos_renyi(6, 0.9, 9))
    assert (problem.n, problem.p, problem.regularizer, problem.mu) == (6, 2, "l21", 0.25)
    assert (problem.data.seed, problem.data.samples) == (9, 33)
    assert (algorithm.smoothing.sigma, algorithm.max_rounds, algorithm.tolerance) == (0.125, 77, 0.5)
    assert topology.peers[5].address == "tcp://h.example.org:9005"


def test_options_of_a_regularizer_are_written_as_they_are_given(new):
    words = ("ring", "-d", 3, "--regularizer", "group-l21", "--regularizer-option")
    assert load(new(*words, "groups=[[0, 1], [4, 5]]")).problem.regularizer_options == {"groups": [[0, 1], [4, 5]]}
    assert "KEY=VALUE" in call("topology", "new", *words, "groups", code=2).stderr
    assert "groups: is missing" in call("topology", "new", *words[:-1], code=3).stderr


def test_columns_and_radius_have_their_effect(new):
    assert load(new("grid", "-d", 12, "--columns", 12)).graph.diameter == 11
    assert load(new("geometric", "-d", 12, "--radius", 2, name="b.toml")).graph.diameter == 1


def test_an_existing_file_is_replaced_only_by_force(new, tmp_path):
    file = new("ring", "-d", 5)
    before = file.read_text()
    refused = call("topology", "new", "star", "-o", file, code=3)
    assert f"{file} exists already; choose another name, or replace it with --force" in refused.stderr
    assert file.read_text() == before
    call("topology", "new", "star", "-o", file, "--force")
    assert load(file).name == "star-8"
    assert [path.name for path in tmp_path.iterdir()] == ["net.toml"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["torus", "-d", 7], "--columns must divide 7"),
        (["erdos-renyi", "-d", 40, "--probability", 0.001], "choose a larger --probability"),
        (["geometric", "-d", 40, "--radius", 0.001], "choose a larger --radius"),
        (["ring", "-d", 8, "--first-port", 65530], "peers[6].address = 'tcp://127.0.0.1:65536'"),
        (["ring", "--p", 11], "problem.p = 11: must be at most n = 10"),
        (["ring", "--samples", 3], "problem.data.samples = 3: must be at least 8"),
        (["ring", "--name", "two words"], "name = 'two words'"),
        (["ring", "--name", 'quo"te'], "name"),
        (["ring", "--name", "line\nbreak"], "name"),
        (["ring", "--host", "my host"], "peers[0].address = 'tcp://my host:17000'"),
        (["ring", "--host", 'quo"te'], "address"),
        (["ring", "--seed", 2**63], "problem.data.seed"),
    ],
)
def test_a_topology_that_would_be_refused_is_not_written(options, message, tmp_path):
    result = call("topology", "new", *options, "-o", tmp_path / "net.toml", code=3)
    assert message in result.stderr
    assert result.stdout == ""
    assert not any(tmp_path.iterdir())


def test_check_prints_what_follows_from_the_file(new):
    file = new("path", "-d", 4, "--samples", 40)
    facts = facts_of(file)
    graph = load(file).graph
    lambda_ = np.linalg.norm(graph.matrix() - 1 / 4, 2)
    assert facts["digest"] == load(file).digest
    assert (facts["peers"], facts["edges"], facts["diameter"]) == ("4", "3", "3")
    assert facts["degrees"] == "1 to 2, mean 1.50"
    assert facts["weights"] == "Metropolis"
    assert facts["lambda"] == f"{lambda_:.6f}"
    assert facts["spectral gap"] == f"{1 - lambda_:.6f}"
    assert facts["messages per round"] == "6"
    assert facts["tree"] == "root 1, height 2: a sum takes 4 rounds"
    assert facts["phases"] == "thanos up to 3000"
    rounds = [int(np.ceil(np.log(factor) / np.log(lambda_))) for factor in (1e-6, 1e-15)]
    assert facts["rounds to consensus"] == "{} to shrink disagreement by 1e-6, {} by 1e-15".format(*rounds)
    assert facts["problem"] == "n = 6, p = 2, l1 with mu = 0.1, data: synthetic"
    assert facts["algorithm"] == "thanos, at most 3000 rounds, tolerance 0.001"
    assert facts["Condition 1 asks for"].startswith("beta > ")


def test_check_says_what_each_method_that_suits_the_file_sends_in_all_its_phases(new):
    facts = facts_of(new("path", "-d", 4, "--samples", 40))
    # Over three edges, two whole numbers go up and a word comes down.
    size = 3 * 2 * (264 + 8)
    steps, gram = 3 * (13 * 16 + 15 * 8), 3 * (21 * 16 + (15 + 21) * 8)
    steps, start = 24 * steps, 3 * 12 * 8  # which the word has, too
    assert facts["proximal sends"] == (f"{4 * 25:,} rounds, {size + start + steps:,} bytes: typically 24 sums")
    assert facts["gram sends"] == f"8 rounds, {size + gram:,} bytes: typically 1 sum"
    each = 6 * 2 * 6 * 2 * 8  # X and D both ways
    assert facts["thanos sends"] == (
        f"at most 3,000 rounds, {3000 * each:,} bytes: {each:,} bytes a round (used by this file)"
    )
    assert [label for label, said in facts.items() if "used by this file" in said] == ["thanos sends"]
    # One sum finds the size and all else. A stop takes twice the diameter and one more round.
    tracking, agreement = 37 * 3 + 7, 3 * (13 * 264 + (14 + 4 * 5) * 8)
    assert facts["proximal-tracking sends"] == (
        f"{4 + tracking} rounds, {size + agreement + tracking * each:,} bytes: typically 37 iterations of 3 rounds"
    )
    assert {f"{name} sends" for name in (*SUMMING, *MIXING) if name != "destiny"} <= set(facts)
    # DESTINY is for problems without a regularizer.
    assert "destiny sends" not in facts


def test_check_reckons_with_the_sums_for_the_start_which_gram_does_not_need(new):
    file = new("path", "-d", 3, "--n", 40, "--method", "auto")
    facts = facts_of(file)
    assert facts["proximal sends"].endswith(": typically 7 sums after 21 sums that find the start")
    assert facts["gram sends"].endswith(": typically 1 sum (used by this file)")
    network = StackedNetwork(build(load(file)))
    while not network.is_done:
        network.advance()
    used, payload = sum(network.rounds_by_phase.values()), network.payload_sent
    assert facts["gram sends"].startswith(f"{used:,} rounds, {payload:,} bytes: ")


def test_check_says_what_methods_send_for_an_objective_of_ones_own(new):
    file = new("path", "-d", 3, "--method", "proximal", "--n", 6, "--p", 2)
    put(file, "p = 2", 'p = 2\nobjective = "some:Class"')
    put(file, '{ kind = "leading" }', '{ kind = "random", seed = 1 }')
    facts = facts_of(file)
    assert facts["proximal sends"].endswith(": typically 21 sums (used by this file)")
    # It needs a step that the file would have to say.
    assert "thanos sends" not in facts
    assert "gram sends" not in facts


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("mu", [0.1, 0.01])
def test_check_says_up_to_which_n_the_gram_matrix_is_cheaper_and_auto_goes_by_it(new, p, mu):
    said = facts_of(new("path", "-d", 3, "--p", p, "--mu", mu, "--method", "auto"))["gram sends less"]
    largest = int(
        re.search(r"^than proximal up to n = (\d+) \(up to n = \d+ if a gap of 1e-8 is enough\) with", said)[1]
    )
    for n, method in ((largest, "gram"), (largest + 1, "proximal")):
        file = new("path", "-d", 3, "--n", n, "--p", p, "--mu", mu, "--method", "auto", name=f"{n}.toml")
        facts = facts_of(file)
        rounds = re.fullmatch(f"{method}, at most (\\d+) rounds, tolerance 0.001", facts["algorithm"])[1]
        assert facts["phases"].split(", ")[-1] == f"{method} up to {rounds}"
        assert (int(rounds) == 100_000) is (method == "proximal")
        assert facts["gram sends less"].startswith(f"than proximal up to n = {largest} (")
        assert facts["gram sends less"].endswith(f' with p = {p}; method = "auto" takes {method}')
        assert "Condition 1 asks for" not in facts  # which is of THANOS


ROUNDED = "X and D are rounded on their way: a residual of about 1e-05 can be reached"


@pytest.mark.parametrize(
    ("method", "tolerance", "said"),
    [
        ("proximal-tracking", None, ROUNDED),
        ("proximal-tracking", 1e-6, f"{ROUNDED}; the tolerance is below that"),
        ("gram", None, "changes nothing: gram sends whole numbers and doubles, and is as accurate"),
    ],
)
def test_check_says_what_accuracy_is_left_by_numbers_rounded_on_their_way(new, method, tolerance, said):
    options = [] if tolerance is None else ["--tolerance", tolerance]
    file = new("path", "-d", 3, "--method", method, *options)
    assert "float32" not in facts_of(file)
    assert facts_of(put(file, "[algorithm]", '[algorithm]\nexchange = "float32"'))["float32"] == said


def test_gram_is_refused_where_one_message_would_be_too_large_and_auto_does_without(new):
    result = call("topology", "new", "ring", "--n", 2896, "--method", "gram", "--samples", 80, code=3)
    assert "algorithm.method = 'gram'" in result.stderr
    assert 'must be "proximal", "auto" or another with n = 2896: gram is for n up to 2895, ' in result.stderr
    assert "as one of its messages holds n(n+1)/2 numbers and would exceed 64 MiB" in result.stderr
    facts = facts_of(new("ring", "--n", 2896, "--p", 2, "--samples", 80, "--method", "auto"))
    assert facts["algorithm"].startswith("proximal, ")
    assert facts["gram sends"] == "refused: n is above 2895, and one message would exceed 64 MiB"
    allowed = new("ring", "--n", 2895, "--p", 2, "--samples", 80, "--method", "gram", name="less.toml")
    assert facts_of(allowed)["algorithm"].startswith("gram, ")


def test_check_knows_explicit_weights(new):
    file = put(new("path", "-d", 2), 'weights = "metropolis"', "weights = [[0.75, 0.25], [0.25, 0.75]]")
    assert facts_of(file)["weights"] == "explicit matrix"
    assert facts_of(file)["lambda"] == "0.500000"


@pytest.mark.parametrize(
    ("old", "changed"),
    [
        ("mu = 0.1 ", "mu = 1e100 "),
        ("smoothing.sigma0 = 1.0", "smoothing.sigma0 = 1e-8"),
        ("smoothing.exponent = ", "smoothing.exponent = 4.0 # "),
    ],
)
def test_check_survives_extreme_but_allowed_numbers(new, old, changed):
    assert "Condition 1 asks for" in facts_of(put(new(), old, changed))


def test_check_reads_data_files_too(new, tmp_path):
    file = with_files(new("path", "-d", 3))
    assert facts_of(file)["problem"].endswith("data: files")
    (tmp_path / "1.npy").unlink()
    assert "peers[1].data = '1.npy'" in call("topology", "check", file, code=3).stderr


def test_check_with_an_id_reads_only_that_peers_data_file(new, tmp_path):
    file = with_files(new("path", "-d", 3))
    for i in (0, 2):
        (tmp_path / f"{i}.npy").unlink()
    assert facts_of(file, "--id", 1)["peers"] == "3"
    assert "peers[0].data = '0.npy'" in call("topology", "check", file, "--id", 0, code=3).stderr


def test_check_and_status_refuse_an_id_that_no_peer_has(new):
    file = new("path", "-d", 3)
    for command in ("topology", "check"), ("status",):
        assert f"--id 3: {file} has the peers 0 to 2" in call(*command, file, "--id", 3, code=3).stderr


@pytest.mark.parametrize("command", [["topology", "check"], ["topology", "draw"], ["simulate"]])
def test_all_mistakes_of_a_bad_file_are_printed_without_a_traceback(new, command):
    file = put(put(put(new(), "p = 2 ", "p = 7 "), "beta = 1.0 ", "beta = -1.0 "), "id = 3\n", "id = 2\n")
    result = call(*command, file, code=3)
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: {file}: 3 mistakes\n")
    for key in ("problem.p = 7", "algorithm.beta = -1.0", "peers[3].id = 2"):
        assert f"\n  {key}: " in result.stderr


@pytest.mark.parametrize("command", [["topology", "check"], ["topology", "draw"], ["simulate"]])
def test_an_unreadable_file_is_exit_code_3(tmp_path, command):
    assert "cannot be read" in call(*command, tmp_path / "gone.toml", code=3).stderr
    assert "Is a directory" in call(*command, tmp_path, code=3).stderr


@pytest.mark.parametrize("command", [["topology", "check"], ["simulate"]])
@pytest.mark.parametrize("n", [10**12, 10**20])
def test_a_size_that_no_machine_can_hold_is_refused(new, command, n):
    assert call(*command, put(new(), "n = 6 ", f"n = {n} "), code=3).stderr.startswith("Error: ")


def test_draw_writes_a_picture_named_after_the_topology(new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("topology", "draw", new("tree")).stdout == "drawn: tree-8.svg\n"
    assert (tmp_path / "tree-8.svg").read_text().startswith("<?xml")


def test_draw_writes_the_picture_that_was_asked_for(new, tmp_path):
    file = with_files(new("path", "-d", 3))
    (tmp_path / "0.npy").unlink()
    call("topology", "draw", file, "-o", tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert "ends in one of" in call("topology", "draw", file, "-o", tmp_path / "x.jpg", code=3).stderr


def test_draw_without_matplotlib_names_the_extra(new, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install '.[plots]' in a checkout" in call("topology", "draw", new(), code=3).stderr


def test_an_output_that_cannot_be_written_is_exit_code_3(new):
    file = new()
    for command in (["new", "ring", "-o", file / "x.toml"], ["draw", file, "-o", file / "x.svg"]):
        result = call("topology", *command, code=3)
        assert result.stdout == ""
        assert result.stderr.startswith(f"Error: {file}")


@pytest.mark.parametrize("option", ["--mu", "--tolerance", "--sigma", "--radius", "--probability"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_number_that_is_not_finite_is_a_usage_error(option, value):
    assert option in call("topology", "new", "ring", option, value, code=2).stderr

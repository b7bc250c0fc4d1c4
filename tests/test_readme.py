"""The README and the pages that it leads to are what a user follows: what they show must be what happens."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from click.testing import CliRunner

from thanos_peer.algorithm.methods import METHODS
from thanos_peer.cli.app import app
from thanos_peer.launch.ports import free_ports
from thanos_peer.topology.policy import Policy

ROOT = Path(__file__).parent.parent
PAGES = {
    file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
    for file in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
}
README = PAGES["README.md"]
# What a user reads.
GUIDE = "".join(text for name, text in PAGES.items() if name == "README.md" or Path(name).parent.name == "docs")


def console_block(command):
    """The output that a page shows for a command."""
    found = re.findall(rf"```console\n\$ {re.escape(command)}\n(.*?)```", GUIDE, re.DOTALL)
    assert len(found) == 1, f"{len(found)} pages show the output of: {command}"
    return found[0]


def headings_of(text):
    """What may follow a # in a link to a page."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name):
    links = re.findall(r"\]\(([^)\s]+)\)", PAGES[name])
    for link in links:
        path, _, heading = link.partition("#")
        if "://" in path:
            continue
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), link
        if heading:
            assert heading in headings_of(target.read_text(encoding="utf-8")), link


def test_the_readme_is_short_and_leads_to_every_page():
    assert len(README.split()) <= 3000
    pages = {name for name in PAGES if Path(name).parent.name == "docs"}
    assert pages <= set(re.findall(r"\]\((docs/[\w-]+\.md)[)#]", README))


def test_the_table_of_commands_has_a_row_for_each():
    rows = re.findall(
        r"^\| (`[^|]*`)[^|]* \|", README.partition("## Commands")[2].partition("\n## ")[0], re.MULTILINE
    )
    told = {name.split()[0] for names in rows for name in re.findall(r"`([^`]+)`", names)} - {"check", "draw"}
    assert told == {name for name, command in app.commands.items() if not command.hidden}


def test_the_settings_for_ones_own_data_make_a_topology(tmp_path):
    (settings,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    text = (ROOT / "topologies/small.toml").read_text(encoding="utf-8")
    start, *peers = re.split(r"(?=^\[\[peers\]\])", text, flags=re.MULTILINE)
    np.savetxt(tmp_path / "north.csv", np.random.default_rng(1).standard_normal((9, 6)), delimiter=",")
    (tmp_path / "mine.toml").write_text(start[: start.index("[problem.data]")] + settings + "".join(peers[1:]))
    result = CliRunner().invoke(app, ["topology", "check", str(tmp_path / "mine.toml")])
    assert result.exit_code == 0, result.output


def test_the_output_of_topology_check_is_the_real_one(monkeypatch):
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, ["topology", "check", "topologies/small.toml"])
    assert result.output == console_block("thanos-peer topology check topologies/small.toml")


def test_the_rules_of_a_site_that_are_shown_are_rules_and_all_of_them():
    (rules,) = re.findall(r"```toml\n(.*?)```", PAGES["docs/privacy.md"], re.DOTALL)
    assert list(Policy.model_validate(tomlkit.parse(rules).unwrap()).asked) == list(Policy.model_fields)
    told = re.findall(r"^\| `(\w+) = [^|]*` \|", PAGES["docs/topology.md"], re.MULTILINE)
    assert told == list(Policy.model_fields)


def test_what_disclose_says_of_a_path_with_data_files_is_the_real_table(tmp_path, monkeypatch):
    disclose = "thanos-peer disclose path.toml --id 0"
    monkeypatch.chdir(tmp_path)
    for command in ("topology new path --peers 4 -o path.toml", "keys new --all path.toml"):
        assert CliRunner().invoke(app, command.split()).exit_code == 0
    document = tomlkit.parse(Path("path.toml").read_text(encoding="utf-8"))
    document["problem"]["data"] = {"kind": "files", "center": True, "scale": True, "overall": "auto"}
    Path("path.toml").write_text(tomlkit.dumps(document), encoding="utf-8")
    result = CliRunner().invoke(app, disclose.split()[1:])
    assert result.exit_code == 0, result.output
    assert f"\n\n{console_block(disclose)}\n" in result.output


def test_the_table_of_methods_has_a_row_for_each_with_its_own_defaults():
    rows = re.findall(r"^\| (`[^|]*`) \|.*\| ([^|]+) \| ([\d,]+), (\S+) \|$", GUIDE, re.MULTILINE)
    told = {
        name: (needs.startswith("sparse PCA"), int(rounds.replace(",", "")), float(tolerance))
        for names, needs, rounds, tolerance in rows
        for name in re.findall(r"`([^`]+)`", names)
    }
    known = METHODS.items()
    assert told == {
        name: (method.is_for_pca, method.default_rounds, method.default_tolerance) for name, method in known
    }


def test_the_output_of_simulate_is_the_real_one_up_to_time_and_rounding(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    command = ["simulate", "topologies/small.toml", "--reference"]
    result = CliRunner().invoke(app, [*command, "--quiet", "--out", str(tmp_path / "run")])
    shown = console_block("thanos-peer " + " ".join(command)).splitlines()[:-1]
    printed = result.output.splitlines()[:-1]
    assert [re.sub(r"[-+]?\d\S*", "#", line) for line in printed] == [
        re.sub(r"[-+]?\d\S*", "#", line) for line in shown
    ]
    assert objective_in(printed) == pytest.approx(objective_in(shown), rel=1e-6)  # steps depend on the processor
    assert printed[3] == shown[3]


def test_the_output_of_compare_is_the_real_one_up_to_time_and_rounding(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    command = ["compare", "topologies/small.toml", "--methods", "gram,proximal,thanos", "--seeds", "3"]
    result = CliRunner().invoke(app, [*command, "--quiet", "--out", str(tmp_path / "out")])
    shown = console_block("thanos-peer " + " ".join(command)).splitlines()
    printed = [line for line in result.output.splitlines() if line.startswith("|")][: len(shown)]
    assert [re.split(r" *\| *", line)[1:4] for line in printed] == [
        re.split(r" *\| *", line)[1:4] for line in shown
    ]
    # Rounds, messages and bytes of sums are whole numbers; steps of thanos depend on the processor.
    assert [re.split(r" *\| *", line)[4:7] for line in printed[2:8]] == [
        re.split(r" *\| *", line)[4:7] for line in shown[2:8]
    ]


def objective_in(lines):
    name, value = lines[1].split()
    assert name == "objective"
    return float(value)


def test_the_mistakes_it_shows_are_reported_that_way(tmp_path, monkeypatch):
    text = (ROOT / "topologies/small.toml").read_text(encoding="utf-8")
    text = text.replace("mu = 0.1", "mu = -0.1").replace("[0, 1], [1, 2],", "[0, 1], [2, 2],")
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["topology", "check", "bad.toml"])
    shown = console_block("thanos-peer topology check bad.toml")
    assert result.exit_code == 3
    assert result.output == shown


def test_the_mistake_in_a_data_file_is_reported_that_way(tmp_path, monkeypatch):
    text = (ROOT / "topologies/small.toml").read_text(encoding="utf-8")
    data = text[text.index("[problem.data]") : text.index("[algorithm]")]
    text = text.replace(data, '[problem.data]\nkind = "files"\n').replace('"svd"', '"random", seed = 1')
    for i, port in enumerate(free_ports(3)):  # none is to be there
        text = text.replace(f"127.0.0.1:{17000 + i}", f"127.0.0.1:{port}")
    monkeypatch.chdir(tmp_path)
    Path("net.toml").write_text(text, encoding="utf-8")
    Path("south.csv").write_text("height,age,a,b,c,d\n" + "1,2,3,4,5,6\n" * 5 + "1,NA,3,4,5,6\n", encoding="utf-8")
    command = "start --id 1 --topology net.toml --data south.csv"
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 3
    *before, error = result.output.splitlines()
    assert f"{error}\n" == console_block(f"thanos-peer {command}")
    assert [line.partition("WARNING: ")[2] for line in before] == [
        "not there to be told that this peer leaves (its data cannot be used): peers 0, 2"
    ]


@pytest.mark.parametrize("command", ["compose", "kubernetes"])
def test_what_is_deployed_lies_where_the_next_line_looks_for_it(tmp_path, monkeypatch, command):
    (line,) = re.findall(
        rf"^thanos-peer ({command} mine\.toml.*?) +# writes mine\.{command}/$", GUIDE, re.MULTILINE
    )
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_bytes((ROOT / "topologies/small.toml").read_bytes())
    assert CliRunner().invoke(app, line.split()).exit_code == 0
    assert any(Path(f"mine.{command}").glob("*.yaml"))


def python_blocks(word):
    return [code for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if word in code]


def test_results_can_be_used_as_shown(tmp_path, monkeypatch):
    (code,) = python_blocks("load_result")
    (commands,) = re.findall(r"```sh\n(thanos-peer transform.*?)```", GUIDE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    np.save("new.npy", np.arange(24.0).reshape(4, 6))
    np.savetxt("new.csv", np.load("new.npy"), delimiter=",")
    small = str(ROOT / "topologies/small.toml")
    assert CliRunner().invoke(app, ["simulate", small, "--quiet", "--out", "runs/mine"]).exit_code == 0
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(2, 6) (2, 6) None\n"
    for command in commands.replace("03.npz", "0.npz").splitlines():
        words = command.partition("#")[0].split()[1:]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output


def test_arrays_can_be_fitted_as_shown():
    (code,) = python_blocks("thanos_peer.fit(")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("(2, 8) [0.")


@pytest.mark.parametrize("code", python_blocks("Quartic"))
def test_the_python_example_runs_and_converges(code):
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    last_round, _, feasibility = done.stdout.splitlines()[-1].split()
    assert 0 < int(last_round) < 3000
    assert float(feasibility) < 1e-5


def test_the_exit_codes_agree_with_the_help():
    rows = re.findall(r"^\| (\d+(?:, \d+)?) \|", README, re.MULTILINE)
    assert len(rows) >= 12
    codes = {code for row in rows for code in row.split(", ")}
    help_text = CliRunner().invoke(app, ["--help"]).output
    assert codes == set(re.findall(r"\b(\d+)\s", help_text.split("Exit codes:")[1]))

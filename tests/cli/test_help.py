import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli.commands import call, environment, start

from thanos_peer import __version__
from thanos_peer.cli.app import app


def commands(group=app, path=()):
    """Every command with the words that lead to it."""
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize(
    ("path", "command"), [*commands()], ids=lambda part: "-".join(part) if part and isinstance(part, tuple) else ""
)
def test_every_command_explains_itself_and_its_options(path, command, flag):
    shown = call(*path, flag).stdout
    assert shown.startswith("Usage: ")
    assert command.help.split(".")[0].split()[0] in shown
    for parameter in (one for one in command.params if not getattr(one, "hidden", False)):
        assert max(parameter.opts, key=len) in shown or parameter.human_readable_name in shown
    for name, each in getattr(command, "commands", {}).items():
        assert (f"\n  {name} " in shown) == (not each.hidden)


SMALL = Path(__file__).parents[2] / "topologies" / "small.toml"


def test_the_help_lists_the_commands_and_the_exit_codes():
    shown = call("--help").stdout
    assert "Exit codes: 0 done" in shown
    for name in ("topology", "simulate", "reproduce"):
        assert f"\n  {name} " in shown
    assert {path for path, _ in commands()} >= {("topology", name) for name in ("new", "check", "draw")}


@pytest.mark.parametrize("program", [["-m", "thanos_peer"], ["-c", "from thanos_peer.cli import main; main()"]])
def test_the_version_is_that_of_the_package(program):
    shown = subprocess.run([sys.executable, *program, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"thanos-peer, version {__version__}\n"
    assert shown.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulat"],
        ["simulate"],
        ["simulate", "a.toml", "--engine", "quick"],
        ["simulate", "a.toml", "--every", "0"],
        ["topology", "new", "circle"],
        ["topology", "new", "ring", "--peers", "0"],
        ["topology", "new", "ring", "--peers", "many"],
        ["topology", "new", "erdos-renyi", "--probability", "1.5"],
        ["topology", "new", "ring", "--mu", "-1"],
        ["topology", "new", "ring", "--sigma", "0"],
        ["topology", "new", "ring", "--first-port", "65536"],
        ["topology", "check", "a.toml", "--id", "-1"],
        ["reproduce", "--figure", "l3"],
        ["reproduce", "--rounds", "0"],
        ["reproduce", "--sigma", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2_with_a_hint(arguments):
    result = call(*arguments, code=2)
    assert result.stdout == ""
    assert "Usage: " in result.stderr
    assert "Error: " in result.stderr


def test_numpy_is_not_loaded_before_the_number_of_threads_is_set():
    code = "import sys, thanos_peer.cli; print('numpy' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


@pytest.mark.parametrize("given", [{}, {"OMP_NUM_THREADS": "3"}])
def test_blas_uses_one_thread_unless_the_environment_says_otherwise(given):
    variables = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"]
    code = (
        "import atexit, os; from thanos_peer.cli import main; "
        f"atexit.register(lambda: print(*(os.environ[name] for name in {variables}))); main()"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(**given),
    )
    assert shown.stdout.splitlines()[1].split() == [given.get(name, "1") for name in variables]


def test_checking_a_file_does_not_load_matplotlib(new):
    file = new()
    code = (
        "import atexit, sys; from thanos_peer.cli import main; "
        "atexit.register(lambda: print('matplotlib' in sys.modules)); main()"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, "topology", "check", os.fspath(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.splitlines()[-1] == "False"


def test_the_help_shows_its_examples_a_line_each():
    lines = call("--help").output.splitlines()
    assert "    thanos-peer topology new ring --peers 5 -o ring.toml" in lines
    assert "    thanos-peer run ring.toml" in lines
    assert not any("\\b" in line for line in lines)


def test_output_that_is_not_read_is_exit_code_141():
    process = start("topology", "check", SMALL)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize(("path", "command"), [*commands()])
def test_a_file_that_cannot_be_read_is_left_to_the_command_that_says_so_in_one_line(path, command):
    for parameter in command.params:
        if isinstance(parameter, click.Argument) or path == ("start",):
            assert not getattr(parameter.type, "readable", False), f"{' '.join(path)} {parameter.name}"


INTERRUPTED_WHILE_LOADING = """
import importlib.abc, os, signal, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "thanos_peer.cli.app":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


def test_ctrl_c_while_it_loads_ends_it_without_a_word(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_WHILE_LOADING, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "thanos_peer", "--version"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")

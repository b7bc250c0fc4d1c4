"""The base of the image: named once, to the patch level; what tells its cost does without it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
ENGINE = """\
#!/bin/sh
# an engine that has built an image, has no compose, and may not list the base
case "$*" in
  build*) ;;
  *inspect*thanos-peer*) echo 300000000 ;;
  *inspect*python:3.11.9-slim-bookworm) {base} ;;
  *) exit 1 ;;
esac
"""


def test_the_base_is_named_once_and_to_the_patch_level():
    (base,) = re.findall(r"^ARG BASE=(.+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", base)
    assert [line.split()[1] for line in re.findall(r"^FROM .+$", DOCKERFILE, re.MULTILINE)] == ["$BASE"] * 2
    assert "slim-bookworm" not in (ROOT / "tests/docker/engine.py").read_text(encoding="utf-8")
    assert "slim-bookworm" not in (ROOT / "benchmarks/images.py").read_text(encoding="utf-8")


PIP = """\
#!/bin/sh
# a pip that makes wheels of our own, and fetches others if there is an index
case "$1" in
  wheel) mkdir -p "$5" && echo new > "$5/thanos_peer-1-py3-none-any.whl" ;;
  download) {fetch} && echo new > "$4/numpy-2-any.whl" ;;
esac
"""


@pytest.mark.parametrize(
    ("fetch", "code", "left"),
    [
        ("true", 0, {"numpy-2-any.whl": "new", "thanos_peer-1-py3-none-any.whl": "new"}),
        ("false", 2, {"msgpack-1-any.whl": "old", "thanos_peer-1-py3-none-any.whl": "old"}),
    ],
)
def test_wheels_are_replaced_when_all_are_there_and_kept_where_there_is_no_index(tmp_path, fetch, code, left):
    wheels, pip = tmp_path / "docker/wheels", tmp_path / "venv/bin/pip"
    for directory in (wheels, pip.parent):
        directory.mkdir(parents=True)
    for name in ("msgpack-1-any.whl", "thanos_peer-1-py3-none-any.whl"):
        (wheels / name).write_text("old\n", encoding="ascii")
    (tmp_path / "venv/.venv").touch()
    pip.write_text(PIP.format(fetch=fetch), encoding="ascii")
    pip.chmod(0o755)
    make = ["make", "--silent", "--file", ROOT / "Makefile", "wheels", f"VENV={tmp_path}/venv"]
    done = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert {path.name: path.read_text(encoding="ascii").strip() for path in wheels.iterdir()} == left


@pytest.mark.parametrize(
    ("wheels", "base", "source", "share"),
    [
        (["x-1-py3-none-any.whl"], "echo 100000000", "wheels", "of which the base is 100 MB"),
        ([], "exit 1", "what pip fetched", "its base included, whose size is unknown"),
    ],
)
def test_the_cost_of_a_build_is_told_as_it_was(tmp_path, wheels, base, source, share):
    for name in ("benchmarks/images.py", "docker/Dockerfile"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docker/wheels").mkdir()
    for name in wheels:
        (tmp_path / "docker/wheels" / name).touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(ENGINE.format(base=base), encoding="ascii")
    (tmp_path / "bin/docker").chmod(0o755)
    done = subprocess.run(
        [sys.executable, tmp_path / "benchmarks/images.py", "--peers", "2"],
        env=os.environ | {"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    built, image = done.stdout.splitlines()
    assert built.endswith(f" s, from {source}")
    assert image.startswith(f"image              300 MB, {share}")
    assert "neither `docker compose` nor docker-compose is here" in done.stderr

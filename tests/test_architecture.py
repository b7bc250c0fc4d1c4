"""ARCHITECTURE.md is a map: what it names is there, and a block takes at most ten hops."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "thanos_peer"
PAGES = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    *(f"docs/decisions/{page.name}" for page in ROOT.glob("docs/decisions/*.md")),
)
MAP = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
# Where a page may mean a path to begin.
BASES = (ROOT, PACKAGE, *PACKAGE.iterdir(), *(ROOT / "tests").iterdir(), ROOT / "docs/decisions")


def defined_in(file):
    """Functions and classes of a module, and methods as Class.method."""
    names = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
            names |= {f"{node.name}.{each.name}" for each in getattr(node, "body", ()) if hasattr(each, "name")}
    return names


def paths_in(text):
    """What stands in backquotes and is a path, less those with a NAME in capitals to be filled in."""
    quoted = re.findall(r"`([^`\s]+)`", text)
    paths = [each for each in quoted if re.fullmatch(r"[\w./-]+(\.py|/)", each)]
    return [each for each in paths if not re.search(r"\b[A-Z]{2,}\b", each)]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_is_there(page):
    text = (ROOT / page).read_text("utf-8")
    lost = [path for path in paths_in(text) if not any((base / path).exists() for base in BASES)]
    assert lost == []


def test_a_block_takes_at_most_ten_hops_through_functions_that_exist():
    walk = MAP.partition("## A block, from socket to socket")[2].partition("\n## ")[0]
    hops = re.findall(r"^\| (\d+) \| (.*?) \|", walk, re.MULTILINE)
    assert [int(number) for number, _ in hops] == list(range(1, len(hops) + 1))
    assert 5 < len(hops) <= 10
    named = [pair for _, hop in hops for pair in re.findall(r"`([\w.]+)` \(`([\w/.]+\.py)`\)", hop)]
    assert len(named) >= len(hops) - 1
    assert [(name, file) for name, file in named if name not in defined_in(PACKAGE / file)] == []


def test_a_path_that_is_lost_is_found():
    assert paths_in("`peer/lost.py`, `lost/`, `Rounds.advance`, `src/NAME.py`, lost.py") == [
        "peer/lost.py",
        "lost/",
    ]


def test_every_room_and_module_of_the_package_is_on_the_map():
    rooms = {
        each for row in re.findall(r"^\| (`.*?) \|", MAP, re.MULTILINE) for each in re.findall(r"`([\w/.]+)`", row)
    }
    there = {f"{each.name}/" if each.is_dir() else each.name for each in PACKAGE.iterdir()}
    there = {each for each in there if not each.startswith("__") and each != "py.typed"}
    assert there - rooms == set()
    assert {each for each in rooms if each not in there} == set()

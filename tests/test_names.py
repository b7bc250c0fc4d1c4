"""One name, one thing: no two classes or functions that other modules can import share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import thanos_peer

PACKAGE = Path(thanos_peer.__file__).parent
# Each method is a module with functions of the same names.
EXEMPT = PACKAGE / "algorithm"


def test_no_two_public_classes_or_functions_share_a_name():
    places = defaultdict(list)
    for file in PACKAGE.rglob("*.py"):
        if EXEMPT in file.parents:
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                places[node.name].append(str(file.relative_to(PACKAGE)))
    assert len(places) > 300
    assert {name: files for name, files in places.items() if len(files) > 1} == {}

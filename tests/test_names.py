"""One name, one thing: no two classes or functions that other modules can import share a name.

And a method is named in its own file and in the table of methods only: the rest asks for its traits.
"""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import thanos_peer
from thanos_peer.algorithm.methods import METHODS
from thanos_peer.phases import Mixing, Pooling

PACKAGE = Path(thanos_peer.__file__).parent
ALGORITHM = PACKAGE / "algorithm"
# Functions of modules in algorithm/ that stand for each other: central methods, and searches of stationary points.
COMMON = {"iterates", "is_over", "answer"}
# DESTINY is also a kind of start, which is found by some rounds of the method.
STARTS = {"destiny"}
TABLES = {"MIXING", "SUMMING"}
KINDS = {each.__name__ for each in (*METHODS.values(), Mixing, Pooling)}


def test_no_two_public_classes_or_functions_share_a_name():
    places = defaultdict(list)
    for file in PACKAGE.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
                node.name[0] != "_" and not (ALGORITHM in file.parents and node.name in COMMON)
            ):
                places[node.name].append(str(file.relative_to(PACKAGE)))
    assert len(places) > 300
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def is_name_of_a_method(node):
    """A text that is the name of a method."""
    return isinstance(node, ast.Constant) and node.value in set(METHODS) - STARTS


def is_test_of_a_table(node):
    """X in MIXING, or X in ("auto", *SUMMING), or "beta" in METHODS[X].settings."""
    if not (isinstance(node, ast.Compare) and any(isinstance(each, ast.In | ast.NotIn) for each in node.ops)):
        return False
    looked_in = [each for side in node.comparators for each in ast.walk(side)]
    is_table = any(isinstance(each, ast.Name) and each.id in TABLES for each in looked_in)
    is_beta = isinstance(node.left, ast.Constant) and node.left.value == "beta"
    return is_table or (is_beta and any(isinstance(each, ast.Attribute) for each in looked_in))


def is_test_of_a_kind(node):
    """isinstance(X, Mixing), issubclass(X, Gram), X is Gram."""
    is_call = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass")
    is_same = isinstance(node, ast.Compare) and any(isinstance(each, ast.Is | ast.Eq) for each in node.ops)
    return (is_call or is_same) and any(isinstance(each, ast.Name) and each.id in KINDS for each in ast.walk(node))


def places_of(is_found, text, name):
    return [f"{name}:{node.lineno}" for node in ast.walk(ast.parse(text)) if is_found(node)]


@pytest.mark.parametrize(
    ("is_found", "example"),
    [
        (is_name_of_a_method, 'method == "gram"'),
        (is_test_of_a_table, 'method in ("auto", *SUMMING)'),
        (is_test_of_a_table, '"beta" in METHODS[method].settings'),
        (is_test_of_a_kind, "isinstance(phase, Mixing)"),
    ],
)
def test_no_file_but_the_table_names_a_method_or_tests_for_one(is_found, example):
    assert places_of(is_found, example, "example") == ["example:1"]
    files = [file for file in PACKAGE.rglob("*.py") if ALGORITHM not in file.parents]
    found = (places_of(is_found, file.read_text("utf-8"), file.relative_to(PACKAGE)) for file in files)
    assert [place for places in found for place in places] == []

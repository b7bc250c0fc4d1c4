"""No class grows so large that a reader loses sight of it: methods, and attributes set on self, are counted."""

import ast
from pathlib import Path

import thanos_peer

PACKAGE = Path(thanos_peer.__file__).parent
MOST_METHODS, MOST_ATTRIBUTES = 25, 12
# A record that all parts of a session share, with a line for each attribute that it shows; see its docstring.
RECORDS = {"Conversation"}


def methods_of(node):
    return [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def attributes_of(node):
    """What is set on self in any method; fields of dataclasses and models are not: each has a line of its own."""
    return {
        each.attr
        for method in methods_of(node)
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def too_large(text):
    """The classes of a source that have too much of anything, and how much they have."""
    classes = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)]
    sizes = {each.name: (len(methods_of(each)), len(attributes_of(each))) for each in classes}
    return {
        name: (methods, attributes)
        for name, (methods, attributes) in sizes.items()
        if methods > MOST_METHODS or (attributes > MOST_ATTRIBUTES and name not in RECORDS)
    }


def test_a_class_with_too_much_is_found():
    methods = "\n".join(f"    def f{i}(self): pass" for i in range(MOST_METHODS))
    fields = "self.x = 0; self.y, self.z = 1, 2; self.u: int = 3; self.v += 1;"
    more = " ".join(f"self.a{i} = 0;" for i in range(MOST_ATTRIBUTES - 5))
    assert not too_large(f"class A:\n{methods}")
    assert not too_large(f"class A:\n    def g(self): {fields}{more}")
    assert too_large(f"class A:\n{methods}\n    async def g(self): {fields}") == {"A": (MOST_METHODS + 1, 5)}
    assert too_large(f"class A:\n    def g(self): {fields}{more} self.w = 4") == {"A": (1, MOST_ATTRIBUTES + 1)}


def test_no_class_has_too_many_methods_or_attributes():
    found = {file.name: too_large(file.read_text("utf-8")) for file in PACKAGE.rglob("*.py")}
    assert {name: classes for name, classes in found.items() if classes} == {}

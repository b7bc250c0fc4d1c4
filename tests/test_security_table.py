"""SECURITY.md names a test for each threat: all of them are there, in the files that it says."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(?P<file>tests/(?:\w+/)*test_\w+\.py)?(?:::(?P<name>test_\w+))?`")


def named_tests():
    """All (file, test) that stand in a line of the text; the test is None if the whole file is meant."""
    for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines():
        file = None
        for found in NAMED.finditer(line):
            if found["file"] is not None:
                file = ROOT / found["file"]
            elif found["name"] is None:
                continue
            yield file, found["name"]


def test_every_test_that_is_named_is_there():
    named = list(named_tests())
    assert len({name for _, name in named if name is not None}) >= 40
    for file, name in named:
        assert file is not None, f"{name}: in no file"
        assert file.is_file(), file
        assert name is None or f"\ndef {name}(" in file.read_text(encoding="utf-8"), f"{name} is not in {file}"


def test_every_threat_has_a_test():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = re.search(r"\| threat \| answer \| test \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", text)[1]
    rows = [re.split(r"(?<!\\)\|", row) for row in table.splitlines()]
    assert len(rows) > 20
    assert [row[1] for row in rows if len(row) != 5 or NAMED.search(row[3]) is None] == []

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from thanos_peer.deploy.yaml import Shared, Taken, Text, to_yaml

SCALARS = st.text() | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(min_size=1, max_size=20).filter(lambda key: key != "<<"), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(min_size=1, max_size=20).filter(lambda key: key != "<<"), VALUES, min_size=1))
def test_what_is_written_is_what_a_parser_reads(document):
    assert yaml.safe_load(to_yaml(document)) == document


def test_words_that_look_like_something_else_stay_words():
    document = {"on": "no", "no": "1e3", "a": ["08", "~", "null", "1:30"], "1": "a # b"}
    assert yaml.safe_load(to_yaml(document)) == document
    # This parser reads YAML 1.1, where these are words without quotes too. In YAML 1.2 they are numbers.
    assert to_yaml({"a": ["08", "1e3", "0o14"]}) == 'a: ["08", "1e3", "0o14"]\n'


def test_what_is_shared_is_taken_over_and_can_be_changed():
    text = to_yaml({"x-a": Shared("a", {"b": 1, "c": [1, 2]}), "d": {"<<": Taken("a"), "b": 2}})
    assert yaml.safe_load(text)["d"] == {"b": 2, "c": [1, 2]}


def test_lines_of_a_text_stay_as_they_are():
    document = {"a": Text("one\n  two: 3\n\n# four\n"), "b": [Text("x\ny\n")]}
    assert yaml.safe_load(to_yaml(document)) == {"a": "one\n  two: 3\n\n# four\n", "b": ["x\ny\n"]}


LINES = st.lists(st.text("ab:#-|'\"{}é \t", max_size=8), min_size=1).map(lambda lines: "\n".join(lines) + "\n")


@given(LINES | st.text())
@example("  indented\nname = 1\n")
@example("\n    blank and indented\n")
@example("   \nspaces first\n")
@example("other breaks\u2028\x85\r\nand\x00 controls\n")
def test_a_text_of_any_lines_is_read_as_it_was(text):
    document = {"a": Text(text), "b": {"c": Text(text), "d": [Text(text), [Text(text)], {"e": Text(text)}]}}
    read = {"a": text, "b": {"c": text, "d": [text, [text], {"e": text}]}}
    assert yaml.safe_load(to_yaml(document)) == read


def test_a_text_of_plain_lines_stays_one_that_people_can_read():
    assert to_yaml({"a": Text("one\n  two\n")}) == "a: |\n  one\n    two\n"
    assert to_yaml({"a": Text("  one\ntwo\n")}) == "a: |2\n    one\n  two\n"

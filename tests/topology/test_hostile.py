"""Topology files, and files that they name, made to hurt: refused in few lines, in little time and memory."""

import os
import time
from pathlib import Path
from zipfile import ZIP_DEFLATED

import pytest
from claims import little_memory, npy_header, zipped
from cli.commands import call
from networks import raw_topology
from topology.graphs import put

from thanos_peer.errors import MOST_SHOWN, TopologyError
from thanos_peer.topology import families, parse
from thanos_peer.topology.render import Draft, render
from thanos_peer.topology.sections import LONGEST_PATH, MOST_EDGES, MOST_PEERS
from thanos_peer.topology.text import LARGEST_FILE, MOST_PARTS

TEXT = render(Draft(name="ring-5", d=5, edges=families.ring(5), title="A test."))
SVD = 'start = { kind = "svd" }'
LONGEST = 60  # seconds, on a busy machine


@pytest.fixture(autouse=True)
def _limited():
    with little_memory():
        yield


def refusal(directory, text):
    """What `topology check` says is wrong with a file of this text: one thing in one line, several in few."""
    file = directory / "net.toml"
    file.write_text(text, encoding="utf-8")
    began = time.monotonic()
    said = call("topology", "check", file, code=3).output
    assert time.monotonic() - began < LONGEST
    first, *lines = said.splitlines()
    assert first.startswith(f"Error: {file}: ")
    assert len(lines) <= MOST_SHOWN + 1
    found = [line.strip() for line in lines] or [first.removeprefix(f"Error: {file}: ")]
    assert max(map(len, found)) < 1000 + len(str(directory))
    return found


def with_start(path):
    return TEXT.replace(SVD, f"start = {{ kind = 'file', path = '{path}' }}")


def text_of_files(path):
    """A network of data files, of which the last is named."""
    text = TEXT.replace(SVD, "start = { kind = 'random', seed = 1 }").replace(
        'kind = "synthetic"', 'kind = "files"'
    )
    kept = [line for line in text.splitlines() if not line.startswith(("seed =", "samples =", "scale ="))]
    return "\n".join([*kept, f'data = "{path}"', ""])


def test_twenty_thousand_wrong_edges_cost_little_and_the_first_are_shown(tmp_path):
    wrong = "[0], " * 20_000
    lines = refusal(tmp_path, TEXT.replace("edges = [", f"edges = [{wrong}"))
    assert len(lines) == MOST_SHOWN + 1
    assert lines[0].startswith("edges[0] = [0]: list should have at least 2 items")
    assert lines[-1] == f"and {20_000 - MOST_SHOWN} more"


def test_thousands_of_unknown_keys_and_of_edges_that_lead_nowhere_are_counted_and_not_shown(tmp_path):
    lines = refusal(tmp_path, "".join(f"edge{i} = 1\n" for i in range(5000)) + TEXT)
    assert lines[-1] == f"and {5000 - MOST_SHOWN} more"
    lines = refusal(tmp_path, TEXT.replace("edges = [", f"edges = [{'[0, 9], ' * 5000}"))
    assert lines[-1] == f"and {5000 - MOST_SHOWN} more"


@pytest.mark.parametrize(
    ("key", "value", "most"),
    [
        ("peers", [{}] * (MOST_PEERS + 1), MOST_PEERS),
        ("edges", [[0, 1]] * (MOST_EDGES + 1), MOST_EDGES),
        ("weights", [[]] * (MOST_PEERS + 1), MOST_PEERS),
    ],
    ids=["peers", "edges", "weights"],
)
def test_more_peers_or_edges_than_there_may_be_are_counted_and_nothing_else_is_looked_at(key, value, most):
    with pytest.raises(TopologyError) as caught:
        parse(put(raw_topology(), key, value), file=Path("net.toml"))
    assert str(caught.value) == f"net.toml: {key}: must be at most {most:,}; here are {most + 1:,}"


def test_a_network_of_as_many_peers_as_there_may_be_is_one():
    assert parse(raw_topology("star", MOST_PEERS, samples=MOST_PEERS), file=Path("net.toml")).d == MOST_PEERS
    said = call("topology", "new", "ring", "--peers", MOST_PEERS + 1, code=2).output
    assert f"not in the range 1<=x<={MOST_PEERS}" in said


@pytest.mark.parametrize(
    ("part", "line"),
    [
        *(("a", line) for line in ("{} = 1", "[{}]", "[[{}]]", "x = {{ {} = 1 }}")),
        *((part, "{} = 1") for part in ('"a"', "'a'", '"\\""', "'#'", '" . "')),
    ],
)
def test_a_key_of_very_many_parts_is_refused_before_it_fills_the_memory(tmp_path, part, line):
    key = " . ".join([part] * 20_000)
    (said,) = refusal(tmp_path, f"# a ' \" comment\n{line.format(key)}\n{TEXT}")
    assert said == f"has a key of more than {MOST_PARTS} parts in line 2; it is nested too deeply"


def test_what_only_looks_like_such_a_key_is_none(tmp_path):
    dots = ".".join("a" * 1000)
    texts = f"""['{dots}', "{dots}", "\\"{dots}", '''{dots}\n'{dots}''', \"\"\"{dots}\n"{dots}\\\"\"\"\"]"""
    (said,) = refusal(tmp_path, f"# {dots}\nx = {texts}\n{TEXT}")
    assert said.startswith("x = [")
    (said,) = refusal(tmp_path, f"x = '''{'a' * 10**6}'''\n{TEXT}")
    assert said.startswith("x = 'aaa")


@pytest.mark.parametrize("made", ["pipe", "device", "too large"])
def test_a_topology_that_is_no_ordinary_file_or_too_large_is_refused_at_once(tmp_path, made):
    file = tmp_path / "net.toml"
    if made == "pipe":
        os.mkfifo(file)
    elif made == "device":
        file.symlink_to("/dev/zero")
    else:
        file.write_text(TEXT, encoding="utf-8")
        os.truncate(file, LARGEST_FILE + 1)
    what = (
        f"larger than {LARGEST_FILE // 2**20} MiB"
        if made == "too large"
        else "cannot be read: it is no regular file"
    )
    assert call("topology", "check", file, code=3).output == f"Error: {file}: {what}\n"


@pytest.mark.parametrize(
    "command", [("topology", "check"), ("keys", "new", "--all"), ("compose",), ("kubernetes",)], ids=" ".join
)
def test_a_link_that_leads_to_itself_is_no_topology(tmp_path, command):
    (tmp_path / "net.toml").symlink_to("net.toml")
    said = call(*command, tmp_path / "net.toml", code=3).output
    assert said.endswith("net.toml: cannot be read: Too many levels of symbolic links\n")


def test_data_that_lies_on_another_host_may_be_anything_here(tmp_path):
    text = text_of_files("loop.npy").replace("\naddress = ", '\ndata = "loop.npy"\naddress = ')
    (tmp_path / "net.toml").write_text(text.removesuffix('data = "loop.npy"\n'), encoding="utf-8")
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    call("kubernetes", tmp_path / "net.toml", "-o", tmp_path / "made")


PATHS = {
    "NUL": (r"a\u0000b.npy", "must be a path of 1 to 4096 characters, without control characters"),
    "C1": (r"a\u009b2J.npy", "must be a path of 1 to 4096 characters, without control characters"),
    "line": (r"a\nError: forged.npy", "must be a path of 1 to 4096 characters, without control characters"),
    "longer than any": ("x" * LONGEST_PATH + ".npy", "must be a path of 1 to 4096 characters"),
    "longer than a name": ("x" * 300 + ".npy", "cannot be read: File name too long"),
    "through a file": ("net.toml/x.npy", "cannot be read: Not a directory"),
    "device": ("/dev/zero", "must be a file that ends in .npy"),
}


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("key", ["algorithm.start.path", "peers[4].data"])
def test_a_path_that_leads_nowhere_is_one_line(tmp_path, key, name):
    path, what = PATHS[name]
    if key == "algorithm.start.path":
        text = TEXT.replace(SVD, f'start = {{ kind = "file", path = "{path}" }}')
    else:
        text = text_of_files(path)
    (said,) = refusal(tmp_path, text)
    assert said.startswith(f"{key} = ")
    assert what in said


@pytest.mark.parametrize("where", ["name = ", "mu = "], ids=["at the top", "in a section"])
def test_a_key_can_neither_command_a_terminal_nor_forge_a_line_nor_fill_a_screen(tmp_path, where):
    (said,) = refusal(tmp_path, TEXT.replace(where, rf'"\u001b[2J\u009b\nError: forged" = 1{chr(10)}{where}', 1))
    assert said.isprintable()
    assert r"\x1b[2J\x9b\nError: forged = 1: unknown key" in said
    (said,) = refusal(tmp_path, TEXT.replace(where, f'"{"x" * 10**5}" = 1\n{where}', 1))
    assert len(said) < 400


STARTS = {
    "rows.npy": (npy_header(10**12, 3), "is not a plain numeric .npy file: it ends early"),
    "early.npy": (npy_header(10, 3), "is not a plain numeric .npy file: it ends early"),
    "columns.npy": (npy_header(10, 10**12), "has shape (10, 1000000000000); must be (samples, 3)"),
    "rows.npz": (zipped(X=npy_header(10**12, 3)), "is not a plain numeric .npz file: it ends early"),
    "early.npz": (zipped(X=npy_header(10, 3)), "is not a plain numeric .npz file: it ends early"),
    "bomb.npz": (
        zipped(ZIP_DEFLATED, X=npy_header(2 * 10**6, 3) + bytes(48 * 10**6)),
        "has 2000000 rows; must have 10",
    ),
    "names.npz": (
        zipped(X=npy_header(10, 3) + bytes(240), features=npy_header(3, descr="<U1000000")),
        "is not a plain numeric .npz file: it ends early",
    ),
    "objects.npy": (
        npy_header(10, 3, descr="|O") + b"cposix\nsystem\n(S'touch pwned'\ntR.",
        "it holds Python objects",
    ),
    "objects.npz": (zipped(X=npy_header(10, 3, descr="|O")), "it holds Python objects"),
    "rows.csv": (b"1,2,4\n" * 30_000, "has more than 10 rows; must have 10"),
    "early.csv": (b"1,2,4\n" * 5, "has 5 rows; must have 10"),
    "padded.npy": (
        npy_header(10, 3) + bytes(2**21),
        "has 2,097,280 bytes; what it is to hold needs at most 1,050,496",
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_start_is_not_read_before_it_may_be_one_and_no_header_is_believed(tmp_path, name):
    content, what = STARTS[name]
    (tmp_path / name).write_bytes(content)
    (said,) = refusal(tmp_path, with_start(name))
    assert said.startswith(f"algorithm.start.path = '{name}': {tmp_path / name}, the start, {what}") or (
        "objects" in name and what in said
    )
    assert not Path("pwned").exists()


def test_a_start_of_terabytes_that_are_not_there_is_refused_by_its_size(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy_header(10**12, 3))
    os.truncate(tmp_path / "x.npy", 10**13)
    (said,) = refusal(tmp_path, with_start("x.npy"))
    assert "has 10,000,000,000,000 bytes; what it is to hold needs at most" in said

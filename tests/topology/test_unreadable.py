import pytest
from networks import raw_topology

from thanos_peer.errors import TopologyError
from thanos_peer.topology import families, load, text
from thanos_peer.topology.render import Draft, render

TEXT = render(Draft(name="ring-5", d=5, edges=families.ring(5), title="A test."))


def refusal(path):
    with pytest.raises(TopologyError) as caught:
        load(path)
    (line,) = str(caught.value).split("\n")
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


def test_a_sound_file_is_loaded_from_a_path_or_its_name(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text(TEXT)
    assert load(file).content == load(str(file)).content
    assert load(file).directory == tmp_path
    assert load(file).name == raw_topology()["name"]


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert refusal(tmp_path / "net.toml") == "cannot be read: No such file or directory"


def test_a_directory_is_no_topology_file(tmp_path):
    assert refusal(tmp_path) == "cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TEXT.encode("utf-16"), "is not UTF-8 text: invalid start byte at byte 0"),
        (TEXT.encode() + b"# caf\xe9\n", f"at byte {len(TEXT) + 5}"),
        (b"name = \n", "is not TOML: Invalid value (at line 1, column 8)"),
        (b'name = "a"\nname = "b"\n', "(at line 2, column 11)"),
        (b'name = "a"\n\n[problem\n', "(at line 3, column 9)"),
        (b"x = " + b"[" * 100_000, "is nested too deeply"),
        (b"x = " + b"{a = " * 100_000, "is nested too deeply"),
        (b"x = " + b"9" * 5000, "is not TOML: "),
    ],
)
def test_a_file_that_is_no_toml_is_refused_with_the_place(tmp_path, content, message):
    file = tmp_path / "net.toml"
    file.write_bytes(content)
    line = refusal(file)
    assert line.startswith("is n")
    assert message in line


def test_an_absurdly_long_integer_is_reported_like_any_other_mistake(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text(TEXT.replace("[0, 1]", f"[0, 0x{'f' * 5000}]"))
    with pytest.raises(TopologyError, match=r"edges\[0\]") as caught:
        load(file)
    assert len(str(caught.value)) < 1000


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    file = tmp_path / "net.toml"
    file.write_text(TEXT + "#" * 2**20)
    load(file)
    monkeypatch.setattr(text, "LARGEST_FILE", 2**20)
    assert refusal(file) == "larger than 1 MiB"


def test_an_empty_file_lacks_every_section(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text("")
    with pytest.raises(TopologyError) as caught:
        load(file)
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        f"{key}: is missing" for key in ("name", "edges", "problem", "algorithm", "peers")
    ]

"""Private files: for their owner alone, never through a link, and nothing but regular files."""

import os
import stat

import pytest

from thanos_peer.durable import (
    NotPrivateError,
    NotRegularError,
    make_directory,
    open_private,
    read_regular,
    whole_file,
)


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize(("is_private", "mode"), [(True, 0o600), (False, 0o644)])
def test_only_the_owner_can_read_a_private_file(tmp_path, is_private, mode):
    before = os.umask(0o022)
    try:
        with whole_file(tmp_path / "x", is_private=is_private) as file:
            file.write(b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "x").read_bytes() == b"new"
    assert mode_of(tmp_path / "x") == mode


@pytest.mark.parametrize("name", ["x", "x.new"])
def test_a_link_is_replaced_and_what_it_leads_to_is_not_touched(tmp_path, name):
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (tmp_path / name).symlink_to("elsewhere")
    with whole_file(tmp_path / "x") as file:
        file.write(b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"
    assert (tmp_path / "x").read_bytes() == b"new"
    assert not (tmp_path / "x").is_symlink()


def test_a_pipe_that_lies_where_a_file_is_written_is_removed(tmp_path):
    os.mkfifo(tmp_path / "x.new")
    with whole_file(tmp_path / "x") as file:
        file.write(b"new")
    assert (tmp_path / "x").read_bytes() == b"new"


MAKE = {
    "a symbolic link": lambda path: path.symlink_to("/dev/null"),
    "a pipe": os.mkfifo,
    "a directory": os.mkdir,
}


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_APPEND])
@pytest.mark.parametrize("kind", MAKE)
def test_nothing_but_a_regular_file_is_opened(tmp_path, kind, flags):
    MAKE[kind](tmp_path / "x")
    with pytest.raises((NotRegularError, IsADirectoryError)) as caught:
        open_private(tmp_path / "x", flags)
    assert "directory" in caught.value.strerror.lower() or kind in caught.value.strerror


def test_a_file_of_anybody_may_be_a_link_but_no_pipe(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"content"
    assert read_regular(tmp_path / "file", 3, is_own=True) == b"con"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotRegularError, match="it is a pipe, not a regular file"):
        read_regular(tmp_path / "pipe")


def as_if_of_another_user(monkeypatch, path):
    if os.geteuid() == 0:
        os.chown(path, 54321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)


def test_what_belongs_to_another_user_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"theirs")
    as_if_of_another_user(monkeypatch, tmp_path / "x")
    assert read_regular(tmp_path / "x") == b"theirs"
    with pytest.raises(NotPrivateError, match=r"it belongs to user \d+, and this peer runs as user 12345"):
        read_regular(tmp_path / "x", is_own=True)


def test_a_directory_of_another_user_is_refused_but_root_may_use_it(tmp_path, monkeypatch):
    as_if_of_another_user(monkeypatch, tmp_path)
    with pytest.raises(NotPrivateError, match="belongs to user"):
        make_directory(tmp_path, is_private=True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    make_directory(tmp_path, is_private=True)


@pytest.mark.parametrize(("before", "after"), [(0o777, 0o755), (0o775, 0o755), (0o750, 0o750), (0o1777, 0o1777)])
def test_a_directory_that_is_there_is_closed_to_other_writers(tmp_path, before, after):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(before)
    make_directory(tmp_path / "state", is_private=True)
    assert mode_of(tmp_path / "state") == after


def test_a_new_private_directory_is_for_its_owner_alone_and_those_above_are_as_usual(tmp_path):
    make_directory(tmp_path / "above/state", is_private=True)
    assert mode_of(tmp_path / "above/state") == 0o700
    assert mode_of(tmp_path / "above") != 0o700

import io
import re
import sys

from networks import make_instance

from thanos_peer.cli.progress import NetworkPace, Progress, describe_row
from thanos_peer.simulate import StackedNetwork, measure


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_on(stream, monkeypatch, *, silent=False, label="simulate", network=None):
    instance = make_instance()
    row = measure(StackedNetwork(instance), instance)
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(label, 4, silent=silent) as progress:
        for _ in range(2):
            progress.show(row, rounds=2, network=network)
    return stream.getvalue(), row


def test_a_narrow_terminal_sees_what_fits(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown, _ = shown_on(Terminal(), monkeypatch, silent=False)
    lines = re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", shown).replace("\r", "\n").splitlines()
    assert any("feas " in line for line in lines)
    # There is room for a part of the line only.
    assert not any("obj" in line for line in lines)
    assert max(len(line.rstrip()) for line in lines) <= 60


def test_eighty_columns_have_room_for_all_that_there_is_to_see_of_a_network(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown, row = shown_on(Terminal(), monkeypatch, label="run", network=NetworkPace(speed=1234.5, slowest=31))
    assert (
        f"0  1234/s  feas {row.feasibility:.0e}  cons {row.consensus:.0e}  obj {row.objective:.5g}  slow 31"
        in shown
    )


def test_a_wide_terminal_and_a_log_say_it_in_words(monkeypatch):
    network, end = NetworkPace(speed=49.6, slowest=3), "  50 rounds/s  slowest peer 3"
    monkeypatch.setenv("COLUMNS", "140")
    shown, row = shown_on(Terminal(), monkeypatch, network=network)
    assert "  ".join(describe_row(row)) + end in shown
    monkeypatch.setattr("thanos_peer.cli.progress.QUIET_SECONDS", 0.0)
    shown, _ = shown_on(io.StringIO(), monkeypatch, network=network)
    assert shown.splitlines() == [f"simulate {k}/4  {'  '.join(describe_row(row))}{end}" for k in (2, 4)]


def test_a_terminal_sees_a_bar_that_fills(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown, row = shown_on(Terminal(), monkeypatch, silent=False)
    assert "simulate" in shown
    assert "100%" in shown
    assert "  ".join(describe_row(row)) in shown


def test_nothing_is_shown_when_silent(monkeypatch):
    assert shown_on(Terminal(), monkeypatch, silent=True)[0] == ""


def test_a_log_file_does_not_see_every_round(monkeypatch):
    assert shown_on(io.StringIO(), monkeypatch, silent=False)[0] == ""


def test_a_row_is_described_in_a_few_words(monkeypatch):
    _, row = shown_on(io.StringIO(), monkeypatch, silent=True)
    assert describe_row(row)[0] == "round 0"
    assert describe_row(row)[-1] == f"objective {row.objective:.6g}"

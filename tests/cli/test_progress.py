import io
import re
import sys

from networks import make_instance

from thanos_peer.cli.progress import Progress, describe
from thanos_peer.simulate import StackedNetwork, measure


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_on(stream, monkeypatch, *, silent):
    instance = make_instance()
    row = measure(StackedNetwork(instance), instance)
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("simulate", 4, silent=silent) as progress:
        for _ in range(2):
            progress.show(row, rounds=2)
    return stream.getvalue(), row


def test_a_narrow_terminal_sees_what_fits(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown, _ = shown_on(Terminal(), monkeypatch, silent=False)
    lines = re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", shown).replace("\r", "\n").splitlines()
    assert any("round 0" in line for line in lines)
    assert not any("feasibility" in line for line in lines)  # of which there is room for a part
    assert max(len(line.rstrip()) for line in lines) <= 60


def test_a_terminal_sees_a_bar_that_fills(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown, row = shown_on(Terminal(), monkeypatch, silent=False)
    assert "simulate" in shown
    assert "100%" in shown
    assert describe(row) in shown


def test_nothing_is_shown_when_silent(monkeypatch):
    assert shown_on(Terminal(), monkeypatch, silent=True)[0] == ""


def test_a_log_file_does_not_see_every_round(monkeypatch):
    assert shown_on(io.StringIO(), monkeypatch, silent=False)[0] == ""


def test_a_row_is_described_in_a_few_words(monkeypatch):
    _, row = shown_on(io.StringIO(), monkeypatch, silent=True)
    assert describe(row).startswith("round 0  feasibility ")
    assert describe(row).endswith(f"objective {row.objective:.6g}")

import signal

import pytest
from cli.commands import call


@pytest.fixture(autouse=True)
def _signals_as_before():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def new(tmp_path):
    """Makes a topology file with `topology new`."""

    def make(family="ring", *options, name="net.toml"):
        usual = (
            "--n",
            6,
            "--p",
            2,
            "--method",
            "thanos",
            "--tolerance",
            1e-3,
            # Of an option that is given twice, the last value counts.
        )
        call("topology", "new", family, *usual, *options, "-o", tmp_path / name)
        return tmp_path / name

    return make

"""Try inputs, guided by coverage, on what strangers can reach: the decoder, or a peer in conversation.

python tests/fuzz/fuzz.py decoder|handshake [--inputs 1000000] [--seconds 60] [--seed 1]

Needs the extra `fuzz` (atheris, which brings libFuzzer). Begins from tests/fuzz/corpus and from frames that the
codec itself makes, and prints how many inputs were tried, how many were accepted and refused, and how many edges
of thanos_peer they reached. An input that does anything else than it may, or takes ten seconds or a gigabyte, is
left in a file, and the exit code is 1.
"""

import importlib
import importlib.util
import mmap
import re
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

HERE = Path(__file__).parent
LONGEST_INPUTS = {"decoder": 2048, "handshake": 400}  # bytes
SLOWEST_INPUT, MOST_MEMORY = 10, 1024  # seconds, MB
# Seconds that a hunt takes to set up and to end.
GRACE = 60
COUNTS = struct.Struct("<QQ")  # refused, accepted


def work(target: str, counts: str, options: list[str]) -> None:
    """Be the process that tries inputs: libFuzzer ends it as it likes."""
    import atheris  # noqa: PLC0415 - only here is it needed

    sys.path[0] = str(HERE.parent)
    with atheris.instrument_imports(include=["thanos_peer"]):
        module = importlib.import_module(f"fuzz.{target}")
    for name, seed in module.seeds().items():
        Path(options[1], name).write_bytes(seed)
    with Path(counts).open("r+b") as file:
        shared = mmap.mmap(file.fileno(), COUNTS.size)

    def try_input(data: bytes) -> None:
        is_accepted = module.try_bytes(data)
        refused, accepted = COUNTS.unpack_from(shared)
        COUNTS.pack_into(shared, 0, refused + (not is_accepted), accepted + is_accepted)

    atheris.Setup([sys.argv[0], *options], try_input)
    atheris.Fuzz()


def libfuzzer_options(
    target: str, grown: Path, seeds: Path, findings: Path, *, inputs: int, seconds: int, seed: int
) -> list[str]:
    """How to tell libFuzzer what is wanted; it adds to the first directory, and only reads the others."""
    return [
        str(grown), str(seeds), str(HERE / "corpus" / target),
        f"-runs={inputs}", f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={LONGEST_INPUTS[target]}",
        f"-timeout={SLOWEST_INPUT}", f"-rss_limit_mb={MOST_MEMORY}", f"-artifact_prefix={findings}/",
    ]  # fmt: skip


def watch(command: list[str], seconds: int) -> tuple[int, str]:
    """Run the process that tries inputs; returns its exit code and what it said."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
        process = subprocess.Popen(command, stdout=words, stderr=words)
        try:
            code = process.wait(seconds + GRACE)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            process.kill()
            process.wait()
        words.seek(0)
        return code, words.read()


@click.command()
@click.argument("target", type=click.Choice(tuple(LONGEST_INPUTS)))
@click.option("--inputs", type=click.IntRange(1), default=1_000_000, show_default=True, help="At most so many.")
@click.option("--seconds", type=click.IntRange(1), default=60, show_default=True, help="At most so long.")
@click.option("--seed", type=click.IntRange(1, 2**31), default=1, show_default=True)
@click.option("--findings", type=click.Path(path_type=Path), default=Path("runs/fuzz"), show_default=True)
@click.option(
    "--grow", type=click.Path(path_type=Path), help="Keep inputs that reach new edges in this directory."
)
def main(target: str, inputs: int, seconds: int, seed: int, findings: Path, grow: Path | None) -> None:
    """Try inputs, and say what came of it."""
    if importlib.util.find_spec("atheris") is None:
        raise click.ClickException("atheris is not installed: pip install -e '.[fuzz]' (wheels: Linux on x86-64)")
    findings.mkdir(parents=True, exist_ok=True)
    before, began = set(findings.iterdir()), time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        grown, seeds, counts = (
            grow or Path(directory, "grown"),
            Path(directory, "seeds"),
            Path(directory, "counts"),
        )
        grown.mkdir(parents=True, exist_ok=True)
        seeds.mkdir()
        counts.write_bytes(bytes(COUNTS.size))
        options = libfuzzer_options(target, grown, seeds, findings, inputs=inputs, seconds=seconds, seed=seed)
        code, words = watch([sys.executable, __file__, "--work", target, str(counts), *options], seconds)
        refused, accepted = COUNTS.unpack(counts.read_bytes())
    edges = max(map(int, re.findall(r"\bcov: (\d+)", words)), default=0)
    took = time.monotonic() - began
    click.echo(
        f"{target}: {refused + accepted} inputs in {took:.0f} s (seed {seed}): "
        f"{accepted} accepted, {refused} refused, {edges} edges"
    )
    found = sorted(set(findings.iterdir()) - before)
    if code or found or not edges:
        click.echo(words[-6000:], err=True)
        click.echo(f"FOUND: {', '.join(map(str, found)) or f'no input, but exit code {code}'}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        main()

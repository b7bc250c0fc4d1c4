"""A report on a run: one page that works offline, and its figures as pictures beside it."""

from pathlib import Path

from thanos_peer.errors import ConfigError
from thanos_peer.plots import LIGHT, require_matplotlib
from thanos_peer.report.page import render_page, sections_of
from thanos_peer.report.reading import read_run

PAGE = "report.html"


def write_report(path: Path, out: Path, file: Path | None = None) -> list[Path]:
    """Report on the run in directory `path`, into directory `out`; older files of the same names are replaced.

    Args:
        path: The run directory.
        out: Where the page and the pictures go.
        file: The topology file; None for the one in the run directory.

    Returns:
        The page, and after it the pictures.

    Raises:
        ConfigError: There is no run, a file of it is damaged, or the report cannot be written.
    """
    require_matplotlib()
    run = read_run(path, file)
    out.mkdir(parents=True, exist_ok=True)
    sections = sections_of(run)
    drawings = [drawing for section in sections for drawing in section.drawings]
    pictures = [_write(out / f"{drawing.name}.png", drawing.drawn(LIGHT, ".png")) for drawing in drawings]
    return [_write(out / PAGE, render_page(run, sections).encode()), *pictures]


def _write(path: Path, content: bytes) -> Path:
    try:
        path.write_bytes(content)
    except OSError as error:
        # The error of a full disk does not name the file.
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}; choose another directory with --out"
        ) from error
    return path

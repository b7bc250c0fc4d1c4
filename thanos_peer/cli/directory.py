"""The directory that `compose` and `kubernetes` write, and what an earlier call has left there."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from thanos_peer.deploy.enclosures import DIRECTORY, POLICY, Enclosures
from thanos_peer.errors import ConfigError
from thanos_peer.topology.policy_files import HOST_FILE

# Mode of files that the peers' user has to read, whatever the umask here.
READABLE = 0o644
OPEN_DIRECTORY = 0o755  # the same for directories


def new_directory(path: Path, *, is_replaced: bool) -> Path:
    """Make a directory, unless there is something in it.

    Raises:
        ConfigError: It holds something that may not be replaced.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())) and not is_replaced:
        raise ConfigError(f"{path} exists already; choose another with --output, or replace it with --force")
    path.mkdir(parents=True, exist_ok=True)
    return path


def enclose(directory: Path, enclosures: Enclosures) -> None:
    """Copy what goes along with the topology file."""
    for name, source in enclosures.files.items():
        target = directory / DIRECTORY / name
        target.parent.mkdir(exist_ok=True)
        target.parent.chmod(OPEN_DIRECTORY)
        _copy(source, target)
    if enclosures.policy is not None:
        _copy(enclosures.policy, directory / POLICY)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(READABLE)


def written_before(file: Path) -> str:
    """What an earlier call has written there; empty if the files there are not ours."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return text if "Written by `thanos-peer" in text else ""


def remove_stale_files(directory: Path, before: str, enclosures: Enclosures) -> None:
    """Remove the start, the code and the rules that an earlier call has enclosed."""
    files = directory / DIRECTORY
    code = [files / name for name in re.findall(rf"/network/{DIRECTORY}/(\w+\.py)", before)]
    stale = [path for path in [*files.glob("start.np[yz]"), *code] if path.name not in enclosures.files]
    remove_all(stale, files)
    if enclosures.policy is None and str(HOST_FILE) in before:
        (directory / POLICY).unlink(missing_ok=True)


def remove_all(paths: Iterable[Path], directory: Path) -> None:
    """Remove files, and their directory if nothing else is in it."""
    for path in paths:
        path.unlink(missing_ok=True)
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()

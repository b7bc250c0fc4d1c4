"""`thanos-peer compose`: a directory from which `docker compose` or a swarm runs the peers of a topology."""

import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any

import click

from thanos_peer.cli.directory import (
    READABLE,
    enclose,
    new_directory,
    remove_all,
    remove_stale_files,
    written_before,
)
from thanos_peer.cli.numbers import FiniteFloat
from thanos_peer.cli.paths import PATH
from thanos_peer.cli.policy import POLICY_OF_PEERS, check_deployed
from thanos_peer.cli.start import LET_PEERS_RUN
from thanos_peer.cli.words import Word
from thanos_peer.deploy.compose import compose_file, environment_file, stack_file
from thanos_peer.deploy.containers import (
    IMAGE,
    IMAGE_USER,
    Limits,
    memory_of,
    needs_parquet,
    relocated,
    secrets_of,
)
from thanos_peer.deploy.enclosures import POLICY, enclosures_of
from thanos_peer.deploy.services import Choices, service_of
from thanos_peer.errors import ConfigError
from thanos_peer.json_files import DamagedJSONError, read_json
from thanos_peer.topology import Topology, load
from thanos_peer.transport.key_change import change_keys
from thanos_peer.transport.keys import secret_directory, secret_file

IMAGE_OPTION = click.option(
    "--image",
    type=Word(r"[\w\[][\w.:/@+\[\]-]*", "the name of an image"),
    default=IMAGE,
    show_default=True,
    help="The image of all peers; `make image` builds it.",
)
MEMORY_OPTION = click.option(
    "--memory",
    type=click.IntRange(min=64),
    metavar="MIB",
    help="Limit per peer.  [default: plenty for the problem]",
)
CPUS_OPTION = click.option(
    "--cpus",
    type=FiniteFloat(min=0.01),  # the least that engines can set
    default=1.0,
    show_default=True,
    help="Limit per peer.",
)


@click.command("compose")
@click.argument("file", type=PATH)
@click.option("--output", "-o", type=PATH, help="Directory.  [default: NAME.compose]")
@click.option("--force", is_flag=True, help="Replace what an earlier call has written there.")
@IMAGE_OPTION
@click.option(
    "--build", metavar="DIR", help="Build the image from here if it is missing; as seen from the output."
)
@MEMORY_OPTION
@CPUS_OPTION
@click.option(
    "--user",
    metavar="UID:GID",
    help=f"Whom peers run as, and who owns the results.  [default: you; for root {IMAGE_USER}:{IMAGE_USER}]",
)
@POLICY_OF_PEERS
@LET_PEERS_RUN
@click.option(
    "--portable", is_flag=True, help="Nothing of this machine in it, for others to use; with a summary at the end."
)
def compose_command(
    file: Path,
    output: Path | None,
    force: bool,
    image: str,
    build: str | None,
    memory: int | None,
    cpus: float,
    user: str | None,
    policy: Path | None,
    allowed_code: tuple[str, ...],
    portable: bool,
) -> None:
    """Write a directory from which an engine runs the peers of topology FILE as containers.

    compose.yaml is for `docker compose up` (and docker-compose 1), stack.yaml for `docker stack deploy`. There is
    a service per peer, on a network of their own. What comes out is in results/. Peers without keys in FILE get
    new ones; their secrets lie in topology.keys/, and each container gets its own only. A start in a file, and
    code that is allowed, are copied to files/. Containers have an /etc of their own: rules of this site hold there
    if --policy takes them along.
    """
    topology = load(os.path.realpath(file), allowed_code=allowed_code)
    enclosures = enclosures_of(topology, policy)
    if portable:
        _check_portable(file, topology, user, policy)
    limits = Limits(memory or memory_of(topology), cpus)
    owner = None if portable else _owner(user)
    if owner is not None:
        _check_readable(topology, owner)
    chosen = {} if owner is None else {"user": f"{owner[0]}:{owner[1]}"}
    is_encrypted = topology.content.unencrypted is None
    check_deployed(topology, policy, makes_keys=is_encrypted)
    choices = Choices(
        limits,
        image=image,
        build=build,
        has_secrets=is_encrypted,
        enclosures=enclosures,
        is_portable=portable,
        **chosen,
    )
    directory = new_directory(output or Path(f"{topology.name}.compose"), is_replaced=force)
    if portable:
        _check_nothing_private(directory)
    _check_results(directory, topology)
    before = written_before(directory / "compose.yaml")
    _write(directory, topology, choices, owner)
    if before:
        _remove_stale(directory, before, topology, choices)
    warn_of_parquet(topology)
    click.echo(f"{directory}: {topology.d} services; start them with: cd {directory} && docker compose up")


def warn_of_parquet(topology: Topology) -> None:
    """Say what the image needs for Parquet files; whether it has it, only the engine knows."""
    if (lack := needs_parquet(topology)) is not None:
        click.echo(f"Note: {lack}", err=True)


def _check_portable(file: Path, topology: Topology, user: str | None, policy: Path | None) -> None:
    """Refuse what only this machine has."""
    if policy is not None:
        raise ConfigError(f"--portable: --policy {policy} has rules of this site; leave it out for others")
    if topology.problem.data.kind == "files":
        raise ConfigError(f"--portable: {file} names data files, which are of this machine")
    if topology.has_keys:
        raise ConfigError(f"--portable: {file} has keys, whose secrets are of this machine; leave them out of it")
    if user is not None:
        raise ConfigError(
            f"--portable: --user {user} is of this machine; leave it out: results go to the owner of the directory"
        )


def _check_nothing_private(directory: Path) -> None:
    """Refuse to make a directory for others where secrets lie, or paths of this machine, from an earlier call."""
    written_before = (secret_directory(directory / "topology.toml"), directory / "stack.yaml")
    private = [str(path) for path in written_before if path.exists()]
    if private:
        raise ConfigError(
            f"--portable: {' and '.join(private)} of an earlier call must not be passed on to others; choose "
            "another directory with --output"
        )


def _check_results(directory: Path, topology: Topology) -> None:
    """Refuse to replace a network whose results are there: its peers would end, and be started, over and over."""
    for file in sorted((directory / "results/peers").glob("*.json")):
        try:
            digest = read_json(file, dict[str, Any]).get("digest")
        except (OSError, DamagedJSONError):
            # The peer itself says what is wrong with the file.
            continue
        if digest != topology.digest:
            raise ConfigError(
                f"{file} is a result of another topology than {topology.file}: choose another directory with "
                f"--output; or forget that run with `docker compose down --volumes` in {directory}, and remove "
                f"{directory / 'results'}"
            )


def _remove_stale(directory: Path, before: str, topology: Topology, choices: Choices) -> None:
    """Remove what an earlier call has written and this one has not, secrets above all."""
    secrets = secret_directory(directory / "topology.toml")
    count = topology.d if choices.has_secrets and not choices.is_portable else 0
    kept = {secret_file(secrets, agent) for agent in range(count)}
    remove_all([path for path in secrets.glob("*.secret") if path not in kept], secrets)
    remove_stale_files(directory, before, choices.enclosures)


def _owner(user: str | None) -> tuple[int, int]:
    """Whom the peers run as: the caller, but never root unless asked for."""
    if user is None:
        return (os.getuid(), os.getgid()) if os.getuid() else (IMAGE_USER, IMAGE_USER)
    if re.fullmatch(r"\d{1,9}:\d{1,9}", user) is None:
        raise ConfigError(f"--user {user}: must be two numbers, as in 1000:1000 (see `id -u` and `id -g`)")
    uid, gid = map(int, user.split(":"))
    return uid, gid


def _check_readable(topology: Topology, owner: tuple[int, int]) -> None:
    """Refuse data that the peers' user could not read; the directories above do not matter to a mounted file."""
    for peer in topology.peers:
        if peer.data is None or owner[0] == 0:
            continue
        there = topology.data_file(peer.id).stat()
        shift = 6 if owner[0] == there.st_uid else 3 if owner[1] == there.st_gid else 0
        if not there.st_mode >> shift & stat.S_IROTH:
            raise ConfigError(
                f"{topology.data_file(peer.id)} of peer {peer.id} cannot be read by user {owner[0]}:{owner[1]}, "
                "whom the peers run as; chown or chmod it, or choose who can with --user"
            )


def _make_results(directory: Path, owner: tuple[int, int]) -> None:
    """Make the directory of the results, if things can be given to the peers' user; else nothing is replaced."""
    with tempfile.NamedTemporaryFile(dir=directory) as trial:
        give_to(Path(trial.name), owner)
    results = directory / "results"
    results.mkdir(exist_ok=True)
    give_to(results, owner)


def _write(directory: Path, topology: Topology, choices: Choices, owner: tuple[int, int] | None) -> None:
    keys = secrets_of(topology) if choices.has_secrets and owner is not None else {}
    if owner is not None:
        _make_results(directory, owner)
    enclose(directory, choices.enclosures)
    if choices.enclosures.policy is not None and owner is not None:
        give_to(directory / POLICY, owner)
    moved = relocated(topology, directory / "topology.toml", service_of)
    moved.file.chmod(READABLE)
    (directory / "compose.yaml").write_text(compose_file(topology, choices), encoding="utf-8")
    place = None if choices.is_portable else os.path.realpath(directory)
    (directory / ".env").write_text(environment_file(topology, place), encoding="utf-8")
    if owner is None:
        return
    (directory / "stack.yaml").write_text(stack_file(topology, choices), encoding="utf-8")
    if keys:
        change_keys(moved, keys, replaces=True)
        secrets = secret_directory(moved.file)
        for agent in keys:
            give_to(secret_file(secrets, agent), owner)


def give_to(path: Path, owner: tuple[int, int]) -> None:
    """Let the peers' user own something.

    Raises:
        ConfigError: Only root may give things away.
    """
    there = path.stat()
    # A user who asks for root has an engine that maps root to this user.
    if owner in ((0, 0), (there.st_uid, there.st_gid)):
        return
    try:
        os.chown(path, *owner)
    except PermissionError as error:
        raise ConfigError(
            f"what is in {path.parent} cannot be given to user {owner[0]}:{owner[1]}; leave out --user, or call "
            "this as root"
        ) from error

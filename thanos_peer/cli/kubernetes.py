"""`thanos-peer kubernetes`: manifests from which a cluster runs the peers of a topology."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from thanos_peer.block import AgentId
from thanos_peer.cli.compose import CPUS_OPTION, IMAGE_OPTION, MEMORY_OPTION, warn_of_parquet
from thanos_peer.cli.directory import enclose, new_directory, remove_stale_files, written_before
from thanos_peer.cli.paths import PATH
from thanos_peer.cli.policy import POLICY_OF_PEERS, check_deployed
from thanos_peer.cli.start import LET_PEERS_RUN
from thanos_peer.cli.words import Word
from thanos_peer.deploy.containers import Limits, data_path, memory_of, relocated, secrets_of
from thanos_peer.deploy.enclosures import Enclosures, enclosures_of
from thanos_peer.deploy.kubernetes import instance_name, manifests, pod_of, removal_of, secrets
from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology, load
from thanos_peer.topology.editing import with_public_keys
from thanos_peer.transport.keys import SECRET_MODE, KeyPair, public_keys


@click.command("kubernetes")
@click.argument("file", type=PATH)
@click.option("--output", "-o", type=PATH, help="Directory.  [default: NAME.kubernetes]")
@click.option("--force", is_flag=True, help="Replace what an earlier call has written there.")
@IMAGE_OPTION
@MEMORY_OPTION
@CPUS_OPTION
@click.option(
    "--storage",
    type=Word(r"[1-9]\d{0,8}[KMGT]i", "a size such as 500Mi or 20Gi"),
    default="1Gi",
    show_default=True,
    help="Size of each volume that a pod claims: for state and results, and for data files.",
)
@POLICY_OF_PEERS
@LET_PEERS_RUN
def kubernetes_command(
    file: Path,
    output: Path | None,
    force: bool,
    image: str,
    memory: int | None,
    cpus: float,
    storage: str,
    policy: Path | None,
    allowed_code: tuple[str, ...],
) -> None:
    """Write manifests from which a Kubernetes cluster runs the peers of topology FILE.

    A StatefulSet with a headless service: the ordinal of a pod is the id of its peer. Peers without keys in FILE
    get new ones; the secrets are in a file of their own that only you can read. A start in a file, and code that
    is allowed, go along in the ConfigMap of the topology, and so do rules of the site with --policy.
    """
    topology = load(os.path.realpath(file), data_of=(), allowed_code=allowed_code)
    enclosures = enclosures_of(topology, policy)
    _check_data(topology)
    check_deployed(topology, policy, makes_keys=topology.content.unencrypted is None)
    limits = Limits(memory or memory_of(topology), cpus)
    directory = new_directory(output or Path(f"{topology.name}.kubernetes"), is_replaced=force)
    keys = secrets_of(topology) if topology.content.unencrypted is None else {}
    moved, content = _moved(topology, keys, enclosures, directory / "topology.toml")
    # Raises an error if they are too large.
    text = manifests(moved, content, image=image, limits=limits, storage=storage, enclosures=enclosures)
    before = written_before(directory / "manifests.yaml")
    enclose(directory, enclosures)
    moved.file.write_text(content, encoding="utf-8")
    if keys:
        _write_private(directory / "secrets.yaml", secrets(moved, keys))
    (directory / "manifests.yaml").write_text(text, encoding="utf-8")
    if before:
        remove_stale_files(directory, before, enclosures)
    if before and not moved.has_keys:
        (directory / "secrets.yaml").unlink(missing_ok=True)
    warn_of_parquet(topology)
    click.echo(
        f"{directory}: {topology.d} pods {instance_name(topology)}-N; start them with: "
        f"kubectl apply --server-side -f {directory}"
    )
    click.echo(f"remove them, and what they have kept, with: {removal_of(topology)}")


def _moved(
    topology: Topology, keys: dict[AgentId, KeyPair], enclosures: Enclosures, file: Path
) -> tuple[Topology, str]:
    """The topology of the pods as it will be in a file, and its text; nothing of it is there yet."""
    with tempfile.TemporaryDirectory() as place:
        enclose(Path(place), enclosures)
        moved = relocated(topology, Path(place, file.name), lambda agent: pod_of(topology, agent))
        if keys:
            moved = with_public_keys(moved, moved.file, public_keys(keys))
        return replace(moved, file=file), moved.file.read_text(encoding="utf-8")


def _check_data(topology: Topology) -> None:
    """Refuse a peer without data: inside a pod no user says where it is."""
    for index, peer in enumerate(topology.content.peers):
        if topology.problem.data.kind == "files" and peer.data is None:
            raise ConfigError(
                f"{topology.file}: peers[{index}].data is missing: write any name that ends as the file does; "
                f'for "x.csv" its pod reads {data_path(peer.id, "x.csv")}'
            )


def _write_private(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET_MODE)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    draft.replace(path)

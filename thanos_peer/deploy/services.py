"""What the services of a compose file have in common: what the user chose, their names, their image."""

from dataclasses import dataclass
from typing import Any

from thanos_peer.block import AgentId
from thanos_peer.deploy.containers import IMAGE, IMAGE_USER, Limits, parquet_peers
from thanos_peer.deploy.enclosures import NOTHING, Enclosures
from thanos_peer.topology import Topology

DONE = {"condition": "service_completed_successfully"}
STARTED = {"condition": "service_started"}


@dataclass(frozen=True)
class Choices:
    """What the user of `compose` may choose.

    Attributes:
        limits: What a container may use.
        image: The image of all peers.
        build: Where to build it, if it is not there: the root of the repository, from the compose file.
        user: `UID:GID` of the peers, which then own their results.
        has_secrets: Whether links are encrypted.
        enclosures: What goes along with the topology file.
        is_portable: Whether nothing of this machine may stand in it, and no secret: keys are made at the first
            start, and results handed over at the end, to the owner of the directory.
    """

    limits: Limits
    image: str = IMAGE
    build: str | None = None
    user: str = f"{IMAGE_USER}:{IMAGE_USER}"
    has_secrets: bool = True
    enclosures: Enclosures = NOTHING
    is_portable: bool = False

    @property
    def makes_keys(self) -> bool:
        """Whether keys are made at the first start."""
        return self.has_secrets and self.is_portable


def service_of(agent: AgentId) -> str:
    """The name of a peer's service, by which its neighbors reach it."""
    return f"peer-{agent}"


def state_of(agent: AgentId) -> str:
    """The name of the volume with a peer's state."""
    return f"state-{agent}"


def image_of(choices: Choices) -> dict[str, Any]:
    """The image of a service; one that is built here is never pulled."""
    return {"image": choices.image} | ({} if choices.build is None else {"pull_policy": "never"})


def build_of(topology: Topology, choices: Choices) -> dict[str, Any]:
    """For one service alone, on which all others depend: engines that build side by side trip over one name."""
    if choices.build is None:
        return {}
    extras = {"args": {"EXTRAS": "parquet"}} if parquet_peers(topology) else {}
    return {"build": {"context": literal(choices.build), "dockerfile": "docker/Dockerfile", **extras}}


def literal(path: str) -> str:
    """A path as a compose file has it, where a single $ names a variable."""
    return path.replace("$", "$$")

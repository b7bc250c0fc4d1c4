"""What goes along with a topology file: a start in a file, code that the user has allowed, rules of the site."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from thanos_peer.errors import ConfigError
from thanos_peer.own_code import allowed_code
from thanos_peer.topology import Topology
from thanos_peer.topology.policy_files import HOST_FILE

# Directory of the start and the code, beside the topology file of a container.
DIRECTORY = "files"
# The rules, beside the topology file of the user; a container has them where a host has its own.
POLICY = HOST_FILE.name


@dataclass(frozen=True)
class Enclosures:
    """Files that every peer needs besides the topology file, and modules that must be installed where it runs.

    Attributes:
        start: The file with the start, if there is one.
        code: Files of Python code that peers may run.
        modules: Modules that peers may run, installed wherever they are.
        policy: The rules of the site that every peer keeps, if there are some.
    """

    start: Path | None = None
    code: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    policy: Path | None = None

    @property
    def files(self) -> dict[str, Path]:
        """Where each file is now, by its name in DIRECTORY."""
        start = {} if self.start is None else {f"start{self.start.suffix}": self.start}
        return start | {path.name: path for path in self.code}

    def environment(self, directory: str) -> dict[str, str]:
        """The variable that lets a peer run this code, and no other, if the files lie in this directory."""
        allowed = [str(PurePosixPath(directory, path.name)) for path in self.code] + [*self.modules]
        return {"THANOS_PEER_ALLOW_CODE": " ".join(allowed)} if allowed else {}


NOTHING = Enclosures()


def enclosures_of(topology: Topology, policy: Path | None = None) -> Enclosures:
    """What goes along with a topology, as far as it names something, and these rules.

    Raises:
        OwnCodeError: It names code that the user has not allowed.
        ConfigError: A file that the user has allowed is not there.
    """
    allowed = allowed_code(topology)
    code = tuple(Path(each) for each in allowed if each.endswith(".py"))
    for path in code:
        if not path.is_file():
            raise ConfigError(f"--allow-code {path}: there is no such file")
    start = topology.algorithm.start
    return Enclosures(
        start=topology.directory / start.path if start.kind == "file" else None,
        code=code,
        modules=tuple(each for each in allowed if not each.endswith(".py")),
        policy=policy,
    )

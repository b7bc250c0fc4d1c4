"""Peers on separate hosts: what to copy to each, what to run there, and how to fetch what comes out.

Everything is printed as lines for a shell, which a person can read, change, or hand to `sh` step by step.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from shlex import quote

from thanos_peer.deploy.enclosures import NOTHING, Enclosures
from thanos_peer.deploy.restarts import LASTING, MOST_RESTARTS, RESTART_WINDOW
from thanos_peer.errors import ConfigError
from thanos_peer.storage.peer_files import PeerFiles
from thanos_peer.topology import Topology
from thanos_peer.topology.sections import PeerSection, is_local
from thanos_peer.transport.keys import secret_directory, secret_file

STEPS = {
    "copy": "copy there",
    "run": "run there",
    "status": "ask how it is getting on",
    "fetch": "fetch what came out, when it is done",
}
# A path of these characters alone means the same to all programs that read one.
PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


@dataclass(frozen=True)
class Host:
    """A host as neighbors name it, and the peers on it."""

    name: str
    peers: tuple[PeerSection, ...]


def host_of(peer: PeerSection) -> str | None:
    """The host in a peer's address; None if only its own host can use that address."""
    found = re.fullmatch(r"tcp://(?:\[(.+)\]|(.+)):\d+", peer.address)
    return None if found is None or is_local(peer.address) else str(found.group(1) or found.group(2))


def hosts_of(topology: Topology) -> list[Host]:
    """The hosts of a topology, in order of the least id on each.

    Raises:
        ConfigError: A peer's address is one that no other host can reach.
    """
    peers: dict[str, list[PeerSection]] = {}
    for peer in topology.peers:
        name = host_of(peer)
        if name is None:
            raise ConfigError(
                f"{topology.file}: peer {peer.id} is at {peer.address}, which no other host can reach; give every "
                "peer the address of its host, or use `thanos-peer run` on this machine"
            )
        peers.setdefault(name, []).append(peer)
    return [Host(name, tuple(there)) for name, there in peers.items()]


def without_data(topology: Topology) -> list[PeerSection]:
    """The peers of which only their own hosts know where their data lies."""
    return [peer for peer in topology.peers if topology.problem.data.kind == "files" and peer.data is None]


def instructions(
    topology: Topology,
    *,
    directory: str,
    steps: Sequence[str] = tuple(STEPS),
    enclosures: Enclosures = NOTHING,
) -> str:
    """What to do for each host, as lines for a shell.

    Args:
        topology: Who lives where.
        directory: Where things go on each host, from the home directory there.
        steps: Which of STEPS.
        enclosures: What goes along with the topology file.
    """
    hosts = hosts_of(topology)
    if not topology.has_keys and topology.content.unencrypted is None:
        raise ConfigError(
            f"{topology.file}: peers on several hosts need keys: make all of them here with `thanos-peer keys new "
            f"--all {topology.file}`, or each on its own host with `thanos-peer keys new`"
        )
    lines = [
        f"# {topology.name}: {topology.d} peers on {len(hosts)} hosts. Each host needs the command thanos-peer",
        "# on the PATH that ssh gives a command, which may lack what a login has; /usr/local/bin is on both.",
    ]
    for host in hosts:
        ports = ", ".join(f"{peer.id} on port {peer.address.rpartition(':')[2]}" for peer in host.peers)
        lines += ["", f"# == {host.name}: peer {ports}"]
        for step in steps:
            lines += [f"# {STEPS[step]}:", *_LINES[step](topology, enclosures, host, PurePosixPath(directory))]
    return "\n".join(lines) + "\n"


def _copy(topology: Topology, enclosures: Enclosures, host: Host, directory: PurePosixPath) -> Iterator[str]:
    file = topology.file
    secrets = secret_directory(file)
    made = directory / secrets.name if topology.has_keys else directory
    start = _start_there(topology, directory)
    places = [made] if start is None else [made, start.parent]
    make = f"umask 077 && mkdir -p {' '.join(quote(str(place)) for place in places)}"
    yield f"ssh -n {quote(host.name)} {quote(make)}"
    yield _send(file, host, directory)
    if start is not None and enclosures.start is not None:
        yield _send(enclosures.start, host, start.parent, start.name)
    elif enclosures.start is not None:
        yield f"# the start must be there, the same as here, as {enclosures.start}"
    for path in enclosures.code:
        yield _send(path, host, directory)
    for module in enclosures.modules:
        yield f"# the Python module {module} must be installed there, beside thanos-peer"
    for peer in host.peers:
        yield from _copy_own(topology, host, peer, made, directory)


def _start_there(topology: Topology, directory: PurePosixPath) -> PurePosixPath | None:
    """Where a start in a file goes; None if there is none, or its path has a place of its own."""
    start = topology.algorithm.start
    is_relative = start.kind == "file" and not PurePosixPath(start.path).is_absolute()
    return directory / start.path if start.kind == "file" and is_relative else None


def _copy_own(
    topology: Topology, host: Host, peer: PeerSection, made: PurePosixPath, directory: PurePosixPath
) -> Iterator[str]:
    """What is of one peer alone: its secret, and its data, which is not ours to copy."""
    secret = secret_file(secret_directory(topology.file), peer.id)
    if topology.has_keys and secret.exists():
        yield _send(secret, host, made, is_secret=True)
    elif topology.has_keys:
        yield f"# the secret of peer {peer.id} is not here: it must be there already, as {made / secret.name}"
    if peer.data is not None:
        yield f"# the data of peer {peer.id} is its own: it must be there already, as {directory / peer.data}"


def _send(file: Path, host: Host, place: PurePosixPath, name: str = "", *, is_secret: bool = False) -> str:
    """Copy a file to a host, under its own name if no other is given.

    Before OpenSSH 9 a shell read the paths of scp there, since then none does: one with a space in it is written
    by a shell in any case.
    """
    local, there = _local(file), place / (name or file.name)
    if not PLAIN.fullmatch(str(there)):
        mode = "umask 077 && " if is_secret else ""
        return f"ssh {quote(host.name)} {quote(f'{mode}cat > {quote(str(there))}')} < {local}"
    target = there if name else f"{place}/"
    return f"scp {'-p ' * is_secret}{local} {quote(f'{_login(host)}:{target}')}"


def _get(there: PurePosixPath, host: Host, place: str) -> Iterator[str]:
    """Copy a file from a host into a directory here; one that is there already stays if that fails."""
    if PLAIN.fullmatch(str(there)):
        yield f"scp {quote(f'{_login(host)}:{there}')} {place}/"
        return
    name = f"{place}/{there.name}"
    yield (
        f"ssh -n {quote(host.name)} {quote(f'cat {quote(str(there))}')} > {name}.new"
        f" || {{ rm -f {name}.new; false; }}"
    )
    yield f"mv {name}.new {name}"


def _local(file: Path) -> str:
    """A path of this host as a word that scp takes for neither a host's nor an option."""
    is_misread = not file.is_absolute() and (":" in str(file) or str(file).startswith("-"))
    return quote(f"./{file}" if is_misread else str(file))


def _run(topology: Topology, enclosures: Enclosures, host: Host, directory: PurePosixPath) -> Iterator[str]:
    allowed = [path.name for path in enclosures.code] + [*enclosures.modules]
    options = "".join(f" --allow-code {each}" for each in allowed)
    unknown = without_data(topology)
    lacks = f"echo {quote(f'{host.name}: no thanos-peer on the PATH that ssh gives a command there')} >&2"
    yield f"ssh -n {quote(host.name)} {quote(f'command -v thanos-peer >/dev/null || {{ {lacks}; exit 127; }}')}"
    for peer in host.peers:
        start = f"thanos-peer start --id {peer.id} --topology {quote(topology.file.name)}{options}"
        if peer in unknown:
            yield f"# only its own host knows where the data of peer {peer.id} is; there, in {directory}:"
            yield f"#   {start} --data FILE"
            continue
        # The command is detached, so that no shell keeps ssh waiting.
        detached = f"{{ nohup {start} >> {peer.id}.log 2>&1 < /dev/null & }}"
        yield f"ssh -n {quote(host.name)} {quote(f'cd {quote(str(directory))} && {detached}')}"


def _status(topology: Topology, _: Enclosures, host: Host, directory: PurePosixPath) -> Iterator[str]:
    ids = " ".join(f"--id {peer.id}" for peer in host.peers)
    ask = f"cd {quote(str(directory))} && thanos-peer status {quote(topology.file.name)} {ids}"
    yield f"ssh -n {quote(host.name)} {quote(ask)}"


def _fetch(topology: Topology, _: Enclosures, host: Host, directory: PurePosixPath) -> Iterator[str]:
    out = PurePosixPath("runs", topology.name)
    yield f"mkdir -p {out}/peers"
    for peer in host.peers:
        files = PeerFiles(Path(out), topology, peer.id)
        for file in (files.result, files.table, files.facts):
            yield from _get(directory / file, host, f"{out}/peers")


_LINES = {"copy": _copy, "run": _run, "status": _status, "fetch": _fetch}


def _login(host: Host) -> str:
    """A host as scp wants it."""
    return f"[{host.name}]" if ":" in host.name else host.name


def systemd_unit(topology: Topology, enclosures: Enclosures = NOTHING) -> str:
    """A unit for all peers of a topology, the same on every host: %i is the id."""
    place, out = "/etc/thanos-peer", f"/var/lib/thanos-peer/{topology.name}"
    file = _unit_word(f"{place}/{topology.file.name}")
    settings = "".join(f'Environment="{key}={text}"\n' for key, text in enclosures.environment(place).items())
    return f"""\
{_unit_head(topology, enclosures, place)}
[Unit]
Description=Peer %i of {topology.name}
Wants=network-online.target
After=network-online.target
# A peer that fails over and over is not restarted in the end: systemctl reset-failed, and start it again.
StartLimitIntervalSec={RESTART_WINDOW}
StartLimitBurst={MOST_RESTARTS}

[Service]
User=thanos-peer
ExecStart=/usr/local/bin/thanos-peer start --id %i --topology {file} --out {out}
StateDirectory=thanos-peer
Environment=OPENBLAS_NUM_THREADS=1
{settings}Restart=on-failure
RestartSec=2
# Told to stop, a peer finishes its round and says so; that is no failure.
SuccessExitStatus=143
# What another start would not mend: usage, a wrong file, diverging numbers, neighbors that differ, a lost state.
RestartPreventExitStatus={LASTING}
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def _unit_word(text: str) -> str:
    """A word of a command in a unit: quoted if need be, with nothing that systemd would replace."""
    kept = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return kept if re.fullmatch(r"[\w@%+=:,./-]+", text) else f'"{kept}"'


def _unit_head(topology: Topology, enclosures: Enclosures, place: str) -> str:
    """What to do before the unit, as comments."""
    start = topology.algorithm.start
    names = [topology.file.name] + ([start.path] if start.kind == "file" else [])
    lines = [
        f"/etc/systemd/system/thanos-peer@.service, the same on every host of {topology.name}.",
        f"Once: useradd --system thanos-peer; the command in /usr/local/bin; in {place}",
        f"  for all to read: {', '.join(names + [path.name for path in enclosures.code])}",
        "  for the host's own peers, chown thanos-peer and chmod 600: their data, and their secret keys in",
        f"  {secret_directory(topology.file).name} (chmod 700).",
        *(f"The Python module {module} must be installed beside thanos-peer." for module in enclosures.modules),
        *(
            f"Only its own host knows where the data of peer {peer.id} is: systemctl edit thanos-peer@{peer.id} "
            "there, and add [Service] and Environment=THANOS_PEER_DATA=FILE."
            for peer in without_data(topology)
        ),
        "Then, on the host of peer 3: systemctl enable --now thanos-peer@3",
    ]
    return "\n".join(f"# {line}" for line in lines)

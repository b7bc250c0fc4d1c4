"""Peers as containers of one engine: a directory for `docker compose`, and for `docker stack deploy`.

compose.yaml   a service per peer, for docker compose 2 and docker-compose 1
stack.yaml     the same for a swarm, which knows other keys
topology.toml  the topology with the containers' addresses
.env           the name of the project, for docker compose
topology.keys  the secret of each peer, which its container alone gets
files/         a start in a file, and code that the topology names
policy.toml    rules of this site, if there are some
results/       what comes out
"""

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from thanos_peer.block import AgentId
from thanos_peer.deploy.containers import HEALTH, IMAGE, IMAGE_USER, TOPOLOGY, Limits, data_path, parquet_peers
from thanos_peer.deploy.enclosures import DIRECTORY, NOTHING, POLICY, Enclosures
from thanos_peer.deploy.restarts import MOST_RESTARTS, RESTART_WINDOW
from thanos_peer.deploy.yaml import Shared, Taken, Text, to_yaml
from thanos_peer.topology import Topology
from thanos_peer.topology.policy_files import HOST_FILE

FILES = f"/network/{DIRECTORY}"
SECRET = "/run/secrets/key"  # noqa: S105 - where it lies
STORED_SECRET = "/state/key"  # noqa: S105 - the same
PREPARE = """\
if test -e {topology}; then
  {is_unchanged} && exit 0
  echo '{names} changed after the first start: bring the old back, or forget that run with' \\
    '`docker compose down --volumes` (results/ stays), and then `docker compose up` again.' >&2
  exit 3
fi
cp -r {originals} /tmp/
thanos-peer keys new --all /tmp/topology.toml
for id in {ids}; do
  chown {uid}:{gid} /states/$$id
  install -o {uid} -g {gid} -m 600 /tmp/topology.keys/$$id.secret /states/$$id/key
done
mkdir -p /network/original
cp -r {originals} /network/original/
{copy_files}chmod -R a+rX /network
install -m 644 /tmp/topology.toml {topology}.new
mv {topology}.new {topology}
"""
COLLECT = """\
mkdir -p /tmp/check
cp -r {originals} /tmp/check/
chmod -R a+rX /tmp/check
setpriv --reuid={uid} --regid={gid} --clear-groups thanos-peer verify /tmp/check/topology.toml --results /results
differ() {{ diff -r "$$1" "$$2" >/dev/null; test $$? -eq 1; }}
if test -e /project/results/peers && differ /results/peers /project/results/peers; then
  kept=results.$$(date -u +%Y%m%d-%H%M%S)
  mv /project/results /project/$$kept
  echo "results/ was of another run: it is kept as $$kept"
fi
mkdir -p /project/results
cp -r /results/. /project/results/
chown -R --reference=/project /project/results
"""


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


def compose_file(topology: Topology, choices: Choices) -> str:
    """The text of compose.yaml."""
    peers = range(topology.d)
    services = {service_of(i): _service(topology, i, choices) for i in peers}
    if choices.makes_keys:
        services = {"prepare": _prepare(topology, choices)} | services
    if choices.is_portable:
        services["outcome"] = _outcome(topology, choices)
    volumes = [_state(i) for i in peers]
    volumes += ["network"] * choices.makes_keys + ["results"] * choices.is_portable
    document = {
        "x-peer": Shared("peer", _image(choices) | _common(choices) | _engine_only(choices)),
        "services": services,
        "networks": {"mesh": {"internal": True}},
        "volumes": {name: {} for name in volumes},
    }
    if choices.has_secrets and not choices.is_portable:
        document["secrets"] = _secrets(topology)
    return f"{_head(topology)}{to_yaml(document)}"


def stack_file(topology: Topology, choices: Choices) -> str:
    """The text of stack.yaml."""
    document = {
        "version": "3.8",
        "x-peer": Shared("peer", {"image": choices.image} | _common(choices) | _swarm_only(choices)),
        "services": {service_of(i): _task(topology, i, choices) for i in range(topology.d)},
        "networks": {"mesh": {"driver": "overlay", "internal": True}},
        "volumes": {_state(i): {} for i in range(topology.d)},
        "configs": {name: {"file": f"./{file}"} for name, file, _ in _configs(choices)},
    }
    if choices.has_secrets:
        document["secrets"] = _secrets(topology)
    return f"{_head(topology)}{to_yaml(document)}"


def environment_file(topology: Topology, directory: str | None) -> str:
    """The text of .env: a name that no other directory has, for volumes outlive the containers of a project.

    Args:
        topology: What runs.
        directory: Where it will lie; None if that is for others to choose.
    """
    name = f"thanos-peer-{topology.name.lower()}".replace(".", "-")
    mark = "" if directory is None else f"-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]}"
    return f"# What containers and volumes are named after.\nCOMPOSE_PROJECT_NAME={name}{mark}\n"


def _head(topology: Topology) -> str:
    return f"# {topology.name}: {topology.d} peers. Written by `thanos-peer compose`.\n\n"


def _common(choices: Choices) -> dict[str, Any]:
    """What all peers share, with any engine."""
    return {
        "user": choices.user,
        "networks": ["mesh"],
        "read_only": True,
        "cap_drop": ["ALL"],
        "stop_grace_period": "30s",
        "healthcheck": {
            "test": ["CMD", *HEALTH],
            "interval": "5s",
            "timeout": "5s",
            # So many retries because a swarm ends unhealthy containers, and the norm of a large matrix takes many
            # minutes.
            "retries": 720,
            # A peer that reads its data does not answer yet, and files may be large.
            "start_period": "24h",
        },
    }


def _engine_only(choices: Choices) -> dict[str, Any]:
    return {
        **({"depends_on": {"prepare": DONE}} if choices.makes_keys else {}),
        "restart": f"on-failure:{MOST_RESTARTS}",
        "mem_limit": f"{choices.limits.memory}m",
        "cpus": choices.limits.cpus,
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": ["/tmp"],  # noqa: S108 - the container's own
    }


def _swarm_only(choices: Choices) -> dict[str, Any]:
    limits = {"cpus": f"{choices.limits.cpus:g}", "memory": f"{choices.limits.memory}M"}
    return {
        "deploy": {
            # The name must be the address of the peer, not of a load balancer before it.
            "endpoint_mode": "dnsrr",
            "restart_policy": {
                "condition": "on-failure",
                "delay": "2s",
                "max_attempts": MOST_RESTARTS,
                "window": RESTART_WINDOW,
            },
            "resources": {"limits": limits},
        },
    }


def _image(choices: Choices) -> dict[str, Any]:
    """The image of a service; one that is built here is never pulled."""
    return {"image": choices.image} | ({} if choices.build is None else {"pull_policy": "never"})


def _build(topology: Topology, choices: Choices) -> dict[str, Any]:
    """For one service alone, on which all others depend: engines that build side by side trip over one name."""
    if choices.build is None:
        return {}
    extras = {"args": {"EXTRAS": "parquet"}} if parquet_peers(topology) else {}
    return {"build": {"context": _as_it_is(choices.build), "dockerfile": "docker/Dockerfile", **extras}}


def _first_peer_builds(topology: Topology, agent: AgentId, choices: Choices) -> dict[str, Any]:
    """Who builds the image, and whom the others wait for, where there is no service before all peers."""
    if choices.makes_keys or choices.build is None:
        return {}
    return _build(topology, choices) if agent == 0 else {"depends_on": {service_of(0): STARTED}}


def _state(agent: AgentId) -> str:
    return f"state-{agent}"


def _secrets(topology: Topology) -> dict[str, Any]:
    return {f"key-{i}": {"file": f"./topology.keys/{i}.secret"} for i in range(topology.d)}


def _environment(agent: AgentId, choices: Choices, secret: str) -> dict[str, str]:
    return (
        {"THANOS_PEER_ID": str(agent)}
        | ({"THANOS_PEER_SECRET_KEY": secret} if choices.has_secrets else {})
        | choices.enclosures.environment(FILES)
    )


def _code(choices: Choices) -> list[str]:
    """The mount of the start and the code."""
    return [f"./{DIRECTORY}:{FILES}:ro"] if choices.enclosures.files else []


def _files(choices: Choices) -> list[str]:
    """The mounts of what goes along with the topology file."""
    rules = [f"./{POLICY}:{HOST_FILE}:ro"] if choices.enclosures.policy is not None else []
    return _code(choices) + rules


def _configs(choices: Choices) -> list[tuple[str, str, str]]:
    """What a swarm hands to all tasks: by name, the file here, and there."""
    rules = [("policy", POLICY, str(HOST_FILE))] if choices.enclosures.policy is not None else []
    return [("topology", "topology.toml", TOPOLOGY), *rules]


def _service(topology: Topology, agent: AgentId, choices: Choices) -> dict[str, Any]:
    mounts = [f"./topology.toml:{TOPOLOGY}:ro", *_files(choices)]
    if choices.makes_keys:
        mounts = ["network:/network:ro"]
    results = "results" if choices.is_portable else "./results"
    service: dict[str, Any] = {
        "<<": Taken("peer"),
        **_first_peer_builds(topology, agent, choices),
        "environment": _environment(agent, choices, STORED_SECRET if choices.is_portable else SECRET),
        "volumes": [*mounts, f"{results}:/results", *_own_mounts(topology, agent)],
    }
    if choices.has_secrets and not choices.is_portable:
        service["secrets"] = [{"source": f"key-{agent}", "target": "key"}]
    return service


def _task(topology: Topology, agent: AgentId, choices: Choices) -> dict[str, Any]:
    task = {
        "<<": Taken("peer"),
        "environment": _environment(agent, choices, SECRET),
        "configs": [{"source": name, "target": target} for name, _, target in _configs(choices)],
        "volumes": [*_code(choices), "./results:/results", *_own_mounts(topology, agent)],
    }
    if choices.has_secrets:
        uid, gid = choices.user.split(":")
        task["secrets"] = [{"source": f"key-{agent}", "target": "key", "uid": uid, "gid": gid, "mode": 0o400}]
    return task


def _own_mounts(topology: Topology, agent: AgentId) -> list[Any]:
    """What no other peer sees."""
    data, state = topology.peers[agent].data, f"{_state(agent)}:/state"
    if data is None:
        return [state]
    file = _as_it_is(os.path.realpath(topology.directory / data))
    return [state, {"type": "bind", "source": file, "target": data_path(agent, data), "read_only": True}]


def _as_it_is(path: str) -> str:
    """A path as a compose file has it, where a single $ names a variable."""
    return path.replace("$", "$$")


def _once(choices: Choices, script: str) -> dict[str, Any]:
    """A service that does something once, as the one user who may give files to others."""
    return {
        **_image(choices),
        "user": "0:0",
        "network_mode": "none",
        "healthcheck": {"disable": True},
        "entrypoint": ["/bin/sh", "-ec"],
        "command": [Text(script)],
    }


def _originals(choices: Choices) -> list[str]:
    """What there is of the topology in the directory of the compose file."""
    return ["topology.toml"] + [DIRECTORY] * bool(choices.enclosures.files)


def _filled_in(script: str, choices: Choices, **more: str) -> str:
    uid, gid = choices.user.split(":")
    originals = " ".join(f"/project/{name}" for name in _originals(choices))
    return script.format(originals=originals, uid=uid, gid=gid, **more)


def _prepare(topology: Topology, choices: Choices) -> dict[str, Any]:
    """Before all start for the first time: makes keys, in memory alone, and gives each peer its own."""
    names = _originals(choices)
    same = "diff -r --exclude=__pycache__ /project/{0} /network/original/{0} >/dev/null"
    script = _filled_in(
        PREPARE,
        choices,
        topology=TOPOLOGY,
        is_unchanged=" && ".join(same.format(name) for name in names),
        names=" or ".join(names),
        copy_files=f"cp -r /project/{DIRECTORY} /network/\n" if choices.enclosures.files else "",
        ids=" ".join(map(str, range(topology.d))),
    )
    states = [f"{_state(i)}:/states/{i}" for i in range(topology.d)]
    return (
        _build(topology, choices)
        | _once(choices, script)
        | {
            "read_only": True,
            "tmpfs": ["/tmp"],  # noqa: S108 - the container's own
            "volumes": [".:/project:ro", "network:/network", *states],
        }
    )


def _outcome(topology: Topology, choices: Choices) -> dict[str, Any]:
    """When all are done: sums up and compares with one process, not as root; then hands the results over."""
    allowed = choices.enclosures.environment(f"/tmp/check/{DIRECTORY}")  # noqa: S108 - the container's own
    return _once(choices, _filled_in(COLLECT, choices)) | {
        **({"environment": allowed} if allowed else {}),
        "depends_on": {service_of(i): DONE for i in range(topology.d)},
        "volumes": [".:/project", "results:/results:ro"],
    }

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
from typing import Any

from thanos_peer.block import AgentId
from thanos_peer.deploy.containers import HEALTH, TOPOLOGY, data_path
from thanos_peer.deploy.enclosures import DIRECTORY, POLICY
from thanos_peer.deploy.once import outcome_service, prepare_service
from thanos_peer.deploy.restarts import MOST_RESTARTS, RESTART_WINDOW
from thanos_peer.deploy.services import DONE, STARTED, Choices, build_of, image_of, literal, service_of, state_of
from thanos_peer.deploy.yaml import Shared, Taken, to_yaml
from thanos_peer.topology import Topology
from thanos_peer.topology.policy_files import HOST_FILE

FILES = f"/network/{DIRECTORY}"
SECRET = "/run/secrets/key"  # noqa: S105 - where it lies
STORED_SECRET = "/state/key"  # noqa: S105 - the same


def compose_file(topology: Topology, choices: Choices) -> str:
    """The text of compose.yaml."""
    peers = range(topology.d)
    services = {service_of(i): _service(topology, i, choices) for i in peers}
    if choices.makes_keys:
        services = {"prepare": prepare_service(topology, choices)} | services
    if choices.is_portable:
        services["outcome"] = outcome_service(topology, choices)
    volumes = [state_of(i) for i in peers]
    volumes += ["network"] * choices.makes_keys + ["results"] * choices.is_portable
    document = {
        "x-peer": Shared("peer", image_of(choices) | _common(choices) | _engine_only(choices)),
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
        "volumes": {state_of(i): {} for i in range(topology.d)},
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


def _first_peer_builds(topology: Topology, agent: AgentId, choices: Choices) -> dict[str, Any]:
    """Who builds the image, and whom the others wait for, where there is no service before all peers."""
    if choices.makes_keys or choices.build is None:
        return {}
    return build_of(topology, choices) if agent == 0 else {"depends_on": {service_of(0): STARTED}}


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
    data, state = topology.peers[agent].data, f"{state_of(agent)}:/state"
    if data is None:
        return [state]
    file = literal(os.path.realpath(topology.directory / data))
    return [state, {"type": "bind", "source": file, "target": data_path(agent, data), "read_only": True}]

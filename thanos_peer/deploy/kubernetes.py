"""Peers as pods: a StatefulSet whose ordinals are the ids, behind a headless service that gives them names.

manifests.yaml  topology (with what goes along with it), service, network policy and StatefulSet
secrets.yaml    the secret of each peer

A StatefulSet restarts every pod that ends, so a peer that is done stays (`start --stay`) until told to go. The
files of a Secret belong to root and a group, and a peer refuses a secret that a group can read: a container that
runs before takes the peer's own one out, for the peer alone.
"""

import hashlib
import re
from base64 import b64encode
from pathlib import Path, PurePath
from typing import Any

from thanos_peer.block import AgentId
from thanos_peer.deploy.containers import HEALTH, IMAGE_USER, PORT, TOPOLOGY, Limits
from thanos_peer.deploy.enclosures import DIRECTORY, POLICY, Enclosures
from thanos_peer.deploy.yaml import Text, to_yaml
from thanos_peer.errors import ConfigError
from thanos_peer.topology import Topology
from thanos_peer.topology.policy_files import HOST_FILE
from thanos_peer.transport.keys import KeyPair

# Bytes: a ConfigMap holds at most a MiB.
LARGEST_CONFIG = 1_000_000
LONGEST_NAME = 40
MARK = 8  # hexadecimal digits
# CPUs that a node must have left for a peer, unless the peer may use less.
LEAST_CPUS = 0.1
KEY = "/key/secret"
TAKE_KEY = f'umask 077 && cp "/keys/$HOSTNAME.secret" {KEY}'


def instance_name(topology: Topology) -> str:
    """The name of all objects of a run: letters, digits and dashes; no other run's, where it had to be changed."""
    slug = re.sub(r"[^a-z0-9]+", "-", topology.name.lower()).strip("-")
    if slug != topology.name or len(slug) > LONGEST_NAME:
        mark = hashlib.sha256(topology.name.encode()).hexdigest()[:MARK]
        slug = f"{slug[: LONGEST_NAME - MARK - 1].rstrip('-')}-{mark}"
    return f"thanos-{slug}"


def removal_of(topology: Topology) -> str:
    """The command that removes a run from the cluster, with what its pods have kept."""
    return f"kubectl delete statefulset,pvc -l app.kubernetes.io/instance={instance_name(topology)}"


def pod_of(topology: Topology, agent: AgentId) -> str:
    """The name by which a pod is reached."""
    name = instance_name(topology)
    return f"{name}-{agent}.{name}"


def manifests(
    topology: Topology, text: str, *, image: str, limits: Limits, storage: str, enclosures: Enclosures
) -> str:
    """The text of manifests.yaml.

    Args:
        topology: What runs.
        text: The topology file, with the pods' addresses.
        image: Of all peers.
        limits: What a pod may use.
        storage: The size of each volume that a pod claims.
        enclosures: What goes along with the topology file.

    Raises:
        ConfigError: All that is larger than a ConfigMap may be.
    """
    objects = [
        _object("v1", "ConfigMap", topology, _config(topology, text, enclosures)),
        _object("v1", "Service", topology, {"spec": _service(topology)}),
        _object("networking.k8s.io/v1", "NetworkPolicy", topology, {"spec": _policy(topology)}),
        _object(
            "apps/v1",
            "StatefulSet",
            topology,
            {"spec": _stateful_set(topology, image, limits, storage, enclosures)},
        ),
    ]
    head = f"# {topology.name}: {topology.d} peers. Written by `thanos-peer kubernetes`.\n"
    if topology.problem.data.kind == "files":
        volume, name = f"data-{instance_name(topology)}-0", PurePath(str(topology.peers[0].data)).name
        head += f"# The data of peer 0 must be in the volume {volume}, as {name}, and so on.\n"
    return head + "".join(f"---\n{to_yaml(one)}" for one in objects)


def _config(topology: Topology, text: str, enclosures: Enclosures) -> dict[str, Any]:
    files = {name: path.read_bytes() for name, path in _all_files(enclosures).items()}
    sizes = {"topology.toml": len(text.encode())} | {name: len(content) for name, content in files.items()}
    if sum(sizes.values()) > LARGEST_CONFIG:
        largest = max(sizes, key=lambda name: sizes[name])
        way_out = "use `thanos-peer hosts`"
        if largest != "topology.toml":
            is_code = largest.endswith(".py")
            way_out = (
                "have it in the image as a module" if is_code else "start from a random point (algorithm.start)"
            )
        raise ConfigError(
            f"{topology.file}: {' and '.join(sizes)} have more than the {LARGEST_CONFIG:,} bytes that a ConfigMap "
            f"holds, {largest} alone {sizes[largest]:,}; {way_out}"
        )
    content: dict[str, Any] = {"data": {"topology.toml": Text(text)}}
    if files:
        content["binaryData"] = {name: b64encode(each).decode() for name, each in files.items()}
    return content


def _all_files(enclosures: Enclosures) -> dict[str, Path]:
    """What goes along, by key in the ConfigMap."""
    return enclosures.files | ({} if enclosures.policy is None else {POLICY: enclosures.policy})


def secrets(topology: Topology, keys: dict[AgentId, KeyPair]) -> str:
    """The text of secrets.yaml."""
    name = instance_name(topology)
    content = {f"{name}-{agent}.secret": f"{pair.secret}\n" for agent, pair in keys.items()}
    return to_yaml(_object("v1", "Secret", topology, {"type": "Opaque", "stringData": content}))


def _object(version: str, kind: str, topology: Topology, content: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": instance_name(topology), "labels": _labels(topology)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata} | content


def _labels(topology: Topology) -> dict[str, str]:
    return {"app.kubernetes.io/name": "thanos-peer", "app.kubernetes.io/instance": instance_name(topology)}


def _service(topology: Topology) -> dict[str, Any]:
    return {
        "clusterIP": "None",
        # Peers have to meet before they are ready.
        "publishNotReadyAddresses": True,
        "selector": _labels(topology),
        "ports": [{"name": "peers", "port": PORT}],
    }


def _policy(topology: Topology) -> dict[str, Any]:
    """Only peers of the same run get in."""
    return {
        "podSelector": {"matchLabels": _labels(topology)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": {"matchLabels": _labels(topology)}}], "ports": [{"port": PORT}]},
        ],
    }


def _stateful_set(
    topology: Topology, image: str, limits: Limits, storage: str, enclosures: Enclosures
) -> dict[str, Any]:
    claims = ["work"] + (["data"] if topology.problem.data.kind == "files" else [])
    return {
        "serviceName": instance_name(topology),
        "replicas": topology.d,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": _labels(topology)},
        "template": {"metadata": {"labels": _labels(topology)}, "spec": _pod(topology, image, limits, enclosures)},
        "volumeClaimTemplates": [_claim(name, storage) for name in claims],
    }


def _claim(name: str, storage: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return {"metadata": {"name": name}, "spec": spec}


def _pod(topology: Topology, image: str, limits: Limits, enclosures: Enclosures) -> dict[str, Any]:
    paths = {"topology.toml": "topology.toml"} | {name: f"{DIRECTORY}/{name}" for name in enclosures.files}
    paths |= {} if enclosures.policy is None else {POLICY: POLICY}
    items = [{"key": key, "path": path} for key, path in paths.items()]
    volumes: list[dict[str, Any]] = [
        {"name": "topology", "configMap": {"name": instance_name(topology), "items": items}},
        {"name": "tmp", "emptyDir": {}},
    ]
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": IMAGE_USER,
            "runAsGroup": IMAGE_USER,
            "fsGroup": IMAGE_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if topology.has_keys:
        pod["initContainers"] = [_take_key(image)]
        volumes += [
            {"name": "keys", "secret": {"secretName": instance_name(topology)}},
            {"name": "key", "emptyDir": {"medium": "Memory"}},
        ]
    return pod | {"containers": [_peer(topology, image, limits, enclosures)], "volumes": volumes}


def _take_key(image: str) -> dict[str, Any]:
    return {
        "name": "key",
        "image": image,
        "command": ["/bin/sh", "-c", TAKE_KEY],
        "volumeMounts": [_mount("keys", "/keys", readOnly=True), _mount("key", "/key")],
        "securityContext": _confined(),
    }


def _peer(topology: Topology, image: str, limits: Limits, enclosures: Enclosures) -> dict[str, Any]:
    mounts = [
        _mount("topology", "/network", readOnly=True),
        _mount("work", "/state", subPath="state"),
        _mount("work", "/results", subPath="results"),
        _mount("tmp", "/tmp"),  # noqa: S108 - the pod's own
    ]
    environment = {"THANOS_PEER_TOPOLOGY": TOPOLOGY} | enclosures.environment(f"/network/{DIRECTORY}")
    if enclosures.policy is not None:
        # The file alone: the directory of a whole volume may be written to by all users, which a peer refuses.
        mounts.append(_mount("topology", str(HOST_FILE), subPath=POLICY, readOnly=True))
    if topology.has_keys:
        mounts.append(_mount("key", "/key", readOnly=True))
        environment["THANOS_PEER_SECRET_KEY"] = KEY
    if topology.problem.data.kind == "files":
        mounts.append(_mount("data", "/data", readOnly=True))
    use = {"cpu": f"{limits.cpus:g}", "memory": f"{limits.memory}Mi"}
    share = {"cpu": f"{min(LEAST_CPUS, limits.cpus):g}", "memory": use["memory"]}
    return {
        "name": "peer",
        "image": image,
        "args": ["start", "--stay"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "ports": [{"name": "peers", "containerPort": PORT}],
        "readinessProbe": {"exec": {"command": [*HEALTH]}, "periodSeconds": 10, "timeoutSeconds": 5},
        "resources": {"limits": use, "requests": share},
        "securityContext": _confined(),
        "volumeMounts": mounts,
    }


def _mount(name: str, path: str, **more: object) -> dict[str, Any]:
    return {"name": name, "mountPath": path, **more}


def _confined() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }

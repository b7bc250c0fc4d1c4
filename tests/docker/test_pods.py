"""The pods of `thanos-peer kubernetes`, by hand: what a node would do with the manifests, done by the engine."""

import os

import pytest
import yaml
from cli.commands import call
from docker.engine import project_of
from namespaces import need
from processes import assert_same_bits, wait_until, write_topology

pytestmark = pytest.mark.docker
USER = 10001


class Node:
    """Runs the containers of a StatefulSet's pods, with the volumes, users and limits that it asks for."""

    def __init__(self, engine, manifests, secrets, place):
        objects = {one["kind"]: one for one in yaml.safe_load_all(manifests.read_text(encoding="utf-8"))}
        self._config = objects["ConfigMap"]["data"] | yaml.safe_load(secrets.read_text())["stringData"]
        self._set = objects["StatefulSet"]
        self._pod = self._set["spec"]["template"]["spec"]
        self._service = objects["Service"]["metadata"]["name"]
        self._engine, self._place, self.network = engine, place, project_of(place)

    def name_of(self, ordinal):
        return f"{self._set['metadata']['name']}-{ordinal}"

    def volume(self, ordinal, name):
        """A directory as a node makes it: files of secrets and configs are root's."""
        directory = self._place / self.name_of(ordinal) / name
        if directory.exists():
            return directory
        directory.mkdir(parents=True)
        os.chown(directory, 0, USER)
        directory.chmod(0o2777)
        source = next((volume for volume in self._pod["volumes"] if volume["name"] == name), {})
        if "secret" in source:
            self._fill(directory, [key for key in self._config if key.endswith(".secret")])
        if "configMap" in source:
            self._fill(directory, [item["key"] for item in source["configMap"]["items"]])
        return directory

    def _fill(self, directory, names):
        for name in names:
            (directory / name).write_text(self._config[name], encoding="utf-8")
            os.chown(directory / name, 0, USER)
            (directory / name).chmod(0o644)  # unless the manifest says otherwise

    def run(self, ordinal, container, *options):
        """Run a container of a pod."""
        name, (user, group) = self.name_of(ordinal), self._ids()
        words = [*options, "--hostname", name, "--user", f"{user}:{group}", "--read-only", "--cap-drop", "ALL"]
        words += ["--security-opt", "no-new-privileges", "--network", self.network]
        words += ["--network-alias", f"{name}.{self._service}", "--env", "KUBERNETES_SERVICE_HOST=10.96.0.1"]
        for each in container.get("env", []):
            words += ["--env", f"{each['name']}={each['value']}"]
        for mount in container["volumeMounts"]:
            there = self.volume(ordinal, mount["name"]) / mount.get("subPath", "")
            if not there.exists():
                there.mkdir(mode=0o775)
                os.chown(there, 0, group)
                there.chmod(0o2775)
            words += ["--volume", f"{there}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"]
        command, arguments = container.get("command", []), container.get("args", [])
        words += ["--entrypoint", command[0]] if command else []
        return self._engine.docker("run", *words, container["image"], *command[1:], *arguments)

    def _ids(self):
        context = self._pod["securityContext"]
        assert context["fsGroup"] == USER
        return context["runAsUser"], context["runAsGroup"]

    def start(self, ordinal):
        """Start a pod; its peer's container."""
        for container in self._pod["initContainers"] * 2:  # a node may run them again
            self.run(ordinal, container, "--rm")
        return self.run(ordinal, self._pod["containers"][0], "--detach")


def test_pods_find_their_ids_and_keys_and_stay_until_they_are_told_to_go(engine, image, tmp_path):  # noqa: ARG001
    # Root is needed: the files of a node are root's.
    need()
    topology = write_topology(tmp_path / "net.toml", "ring", 4)
    call("kubernetes", topology.file, "-o", tmp_path / "cluster")
    place = tmp_path / "node"
    node = Node(engine, tmp_path / "cluster/manifests.yaml", tmp_path / "cluster/secrets.yaml", place)
    engine.docker("network", "create", "--internal", node.network)
    pods = []
    try:
        pods += [node.start(ordinal) for ordinal in range(4)]
        for ordinal, pod in enumerate(pods):
            wait_until(lambda one=pod: "done; staying until SIGTERM" in engine.logs(one), f"pod {ordinal} is done")
            key = node.volume(ordinal, "key") / "secret"
            assert (key.stat().st_uid, key.stat().st_mode & 0o777) == (USER, 0o600)
            secret = node.volume(ordinal, "keys") / f"{node.name_of(ordinal)}.secret"
            assert key.read_bytes() == secret.read_bytes()
        engine.docker("stop", "--time", "60", *pods)
        assert [engine.inspect(pod, ".State.ExitCode") for pod in pods] == ["0"] * 4
    finally:
        if pods:
            engine.docker("rm", "--force", "--volumes", *pods)
        engine.docker("network", "rm", node.network)
    results = tmp_path / "results/peers"
    results.mkdir(parents=True)
    for ordinal in range(4):
        for file in (node.volume(ordinal, "work") / "results/peers").iterdir():
            assert file.stem == str(ordinal)
            file.rename(results / file.name)
    assert_same_bits(tmp_path / "results", topology)

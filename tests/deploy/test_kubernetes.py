"""What `thanos-peer kubernetes` writes, against the published schemas. No cluster was tried."""

import base64
import re
import stat
import tomllib

import kubernetes_validate
import numpy as np
import pytest
import yaml
from cli.commands import call
from deploy.test_compose import name_code_and_start
from deploy.test_hosts import give_files
from own_code.classes import MODULE
from processes import write_topology

from thanos_peer.topology import parse

VERSIONS = ("1.28", kubernetes_validate.latest_version())


def objects(file):
    return {one["kind"]: one for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))}


@pytest.fixture
def cluster(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4)
    call("kubernetes", topology.file, "-o", tmp_path / "cluster")
    return tmp_path / "cluster"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", ["manifests.yaml", "secrets.yaml"])
def test_every_object_keeps_to_the_published_schema(cluster, file, version):
    for one in objects(cluster / file).values():
        kubernetes_validate.validate(one, version, strict=True)


def test_rules_are_mounted_where_a_host_has_its_own(tmp_path):
    def exact(raw):
        raw["algorithm"] = {"method": "gram"}

    rules = tmp_path / "site.toml"
    rules.write_text("masked_sums = true\n", encoding="utf-8")
    topology, directory = write_topology(tmp_path / "net.toml", change=exact), tmp_path / "cluster"
    call("kubernetes", topology.file, "-o", directory, "--policy", rules)
    found = objects(directory / "manifests.yaml")
    for version in VERSIONS:
        for one in found.values():
            kubernetes_validate.validate(one, version, strict=True)
    assert base64.b64decode(found["ConfigMap"]["binaryData"]["policy.toml"]) == rules.read_bytes()
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    volume = next(each for each in pod["volumes"] if each["name"] == "topology")
    assert {"key": "policy.toml", "path": "policy.toml"} in volume["configMap"]["items"]
    file = "/etc/thanos-peer/policy.toml"
    mount = {"name": "topology", "mountPath": file, "subPath": "policy.toml", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
    call("kubernetes", topology.file, "-o", directory, "--force")
    assert "policy.toml" not in (directory / "manifests.yaml").read_text(encoding="utf-8")
    assert not (directory / "policy.toml").exists()


def test_the_schema_would_notice_a_wrong_key(cluster):
    wrong = objects(cluster / "manifests.yaml")["StatefulSet"]
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_the_ordinal_of_a_pod_is_where_neighbors_look_for_the_peer(cluster, tmp_path):
    found = objects(cluster / "manifests.yaml")
    name = found["StatefulSet"]["metadata"]["name"]
    topology = parse(tomllib.loads(found["ConfigMap"]["data"]["topology.toml"]), file=tmp_path / "x.toml")
    assert [peer.address for peer in topology.peers] == [f"tcp://{name}-{i}.{name}:17000" for i in range(4)]
    assert topology.has_keys
    assert found["StatefulSet"]["spec"]["serviceName"] == found["Service"]["metadata"]["name"] == name
    assert found["StatefulSet"]["spec"]["replicas"] == 4
    assert found["Service"]["spec"]["clusterIP"] == "None"
    assert found["Service"]["spec"]["selector"] == found["StatefulSet"]["spec"]["selector"]["matchLabels"]


def test_a_topology_that_begins_with_an_indented_line_is_one_that_the_cluster_reads(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    text = topology.file.read_text(encoding="utf-8")
    topology.file.write_text(f"    # two peers\n{text}", encoding="utf-8")
    call("kubernetes", topology.file, "-o", tmp_path / "cluster")
    config = objects(tmp_path / "cluster/manifests.yaml")["ConfigMap"]
    assert config["data"]["topology.toml"] == (tmp_path / "cluster/topology.toml").read_text(encoding="utf-8")


def test_a_pod_asks_for_no_more_than_it_may_use(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    for cpus, asked in (("0.05", 0.05), ("3", 0.1)):
        call("kubernetes", topology.file, "-o", tmp_path / "cluster", "--cpus", cpus, "--force")
        pod = objects(tmp_path / "cluster/manifests.yaml")["StatefulSet"]["spec"]["template"]["spec"]
        resources = pod["containers"][0]["resources"]
        assert float(resources["limits"]["cpu"]) == float(cpus)
        assert float(resources["requests"]["cpu"]) == asked


def test_there_is_a_secret_per_pod_in_a_file_of_its_own(cluster):
    secret = objects(cluster / "secrets.yaml")["Secret"]
    assert sorted(secret["stringData"]) == [f"thanos-ring-4-{i}.secret" for i in range(4)]
    assert stat.S_IMODE((cluster / "secrets.yaml").stat().st_mode) == 0o600
    for text in secret["stringData"].values():
        assert text.strip() not in (cluster / "manifests.yaml").read_text(encoding="utf-8")


def test_secrets_and_files_of_an_earlier_call_do_not_stay_behind(cluster, tmp_path):
    def change(raw):
        raw["unencrypted"] = "anyone on the network can read and change everything"

    (cluster / "files").mkdir()
    (cluster / "files/start.npy").touch()
    bare = write_topology(tmp_path / "bare.toml", "path", 2, change=change)
    call("kubernetes", bare.file, "-o", cluster, "--force")
    assert {path.name for path in cluster.iterdir()} == {"manifests.yaml", "topology.toml"}


def test_a_name_becomes_one_that_the_cluster_allows(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, name="Lab_7.North--" + "x" * 50)
    call("kubernetes", topology.file, "-o", tmp_path / "cluster")
    name = objects(tmp_path / "cluster/manifests.yaml")["Service"]["metadata"]["name"]
    assert name.startswith("thanos-lab-7-north-x")
    assert len(name) < 50


def test_names_of_two_runs_never_become_one(tmp_path):
    names = ("a-b", "a.b", "a_b", "A-b", "a--b", "a-b-", "x" * 40, "x" * 41, "x" * 42, f"{'x' * 40}y")
    made = []
    for name in names:
        topology = write_topology(tmp_path / "net.toml", "path", 2, name=name)
        said = call("kubernetes", topology.file, "-o", tmp_path / "cluster", "--force").stdout
        found = objects(tmp_path / "cluster/manifests.yaml")["StatefulSet"]["metadata"]
        made.append(found["name"])
        key = "app.kubernetes.io/instance"
        assert said.endswith(f" with: kubectl delete statefulset,pvc -l {key}={found['labels'][key]}\n")
    assert len(set(made)) == len(names)
    assert all(re.fullmatch(r"thanos-[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", each) for each in made)
    assert (made[0], made[6]) == ("thanos-a-b", f"thanos-{'x' * 40}")  # those that need no change


def test_the_size_of_the_claims_can_be_chosen(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    for options, size in (((), "1Gi"), (("--storage", "20Gi"), "20Gi")):
        call("kubernetes", topology.file, "-o", tmp_path / "cluster", "--force", *options)
        stateful_set = objects(tmp_path / "cluster/manifests.yaml")["StatefulSet"]
        kubernetes_validate.validate(stateful_set, VERSIONS[0], strict=True)
        (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["resources"]["requests"] == {"storage": size}
    for wrong in ("", "0Gi", "many", "1 Gi"):
        error = call("kubernetes", topology.file, "-o", tmp_path / "x", f"--storage={wrong}", code=2).stderr
        assert f"'--storage': {wrong!r} is not a size such as 500Mi or 20Gi" in error


def test_code_and_a_start_go_along_in_the_config_map(tmp_path):
    np.save(tmp_path / "begin here.npy", np.eye(6, 2))
    (tmp_path / "mine.py").write_text(MODULE, encoding="utf-8")
    topology = write_topology(tmp_path / "net.toml", "path", 2, change=name_code_and_start)
    call("kubernetes", topology.file, "-o", tmp_path / "cluster", "--allow-code", tmp_path / "mine.py")
    found = objects(tmp_path / "cluster/manifests.yaml")
    for one in found.values():
        kubernetes_validate.validate(one, VERSIONS[0], strict=True)
    sent = {name: base64.b64decode(text) for name, text in found["ConfigMap"]["binaryData"].items()}
    assert sent["mine.py"].decode() == MODULE
    assert sent["start.npy"] == (tmp_path / "begin here.npy").read_bytes()
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "topology"]
    paths = {item["key"]: item["path"] for item in volume["configMap"]["items"]}
    assert paths == {"topology.toml": "topology.toml", "start.npy": "files/start.npy", "mine.py": "files/mine.py"}
    environment = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    assert environment["THANOS_PEER_ALLOW_CODE"] == "/network/files/mine.py"


def test_a_start_that_no_config_map_holds_is_refused_with_a_way_out(tmp_path):
    def change(raw):
        raw["problem"]["n"] = 70_000
        raw["problem"]["data"] = {"kind": "files"}
        raw["algorithm"]["start"] = {"kind": "file", "path": "start.npy"}
        for peer in raw["peers"]:
            np.save(tmp_path / f"{peer['id']}.npy", np.ones((1, 70_000)))
            peer["data"] = f"{peer['id']}.npy"

    np.save(tmp_path / "start.npy", np.eye(70_000, 2))
    topology = write_topology(tmp_path / "net.toml", "path", 2, change=change)
    earlier = write_topology(tmp_path / "earlier.toml", "path", 2)
    call("kubernetes", earlier.file, "-o", tmp_path / "cluster")
    before = {path: path.read_bytes() for path in (tmp_path / "cluster").rglob("*")}
    for options in (("-o", tmp_path / "new"), ("-o", tmp_path / "cluster", "--force")):
        error = call("kubernetes", topology.file, *options, code=3).stderr
        assert error.startswith(
            f"Error: {options[1]}/topology.toml: topology.toml and start.npy have more than the "
        )
        assert "1,000,000 bytes that a ConfigMap holds, start.npy alone 1,120,128" in error
        assert "start from a random point" in error
    assert {path: path.read_bytes() for path in (tmp_path / "cluster").rglob("*")} == before
    call("kubernetes", earlier.file, "-o", tmp_path / "new")  # no --force: nothing has been written


def test_data_that_is_nowhere_named_or_nowhere_to_be_measured_is_refused(tmp_path):
    def change(raw):
        give_files(raw)
        raw["problem"]["objective"] = "mine:Quartic"

    (tmp_path / "private").mkdir()
    for agent in range(2):
        np.save(tmp_path / f"private/{agent}.npy", np.ones((3, 6)))
    file = write_topology(tmp_path / "net.toml", "path", 2, change=change).file
    (tmp_path / "private/1.npy").unlink()
    to = ("-o", tmp_path / "cluster", "--allow-code", "mine")
    assert "say how much memory a peer may use with --memory" in call("kubernetes", file, *to, code=3).stderr
    call("kubernetes", file, *to, "--memory", 300)
    text = file.read_text(encoding="utf-8").replace('data = "private/1.npy"\n', "")
    file.write_text(text, encoding="utf-8")
    error = call("kubernetes", file, *to, "--memory", 300, "--force", code=3).stderr
    assert 'peers[1].data is missing: write any name that ends as the file does; for "x.csv"' in error

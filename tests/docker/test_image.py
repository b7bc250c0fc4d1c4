"""The image: whom it runs as, how it says that it is well, and how it ends."""

import json
import shutil
import subprocess
import time

import numpy as np
import pytest
from cli.commands import call
from docker.engine import make
from processes import wait_until, write_topology

pytestmark = pytest.mark.docker


@pytest.fixture
def lonely(engine, image, tmp_path):  # noqa: ARG001
    """A peer in a container, whose neighbor is not there."""
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    call("compose", topology.file, "-o", tmp_path / "project")
    with engine.project(tmp_path / "project"):
        engine.compose(tmp_path / "project", "up", "-d", "peer-0")
        yield engine.container(tmp_path / "project", "peer-0")


def test_a_peer_is_healthy_runs_without_privileges_and_ends_at_once_when_asked(engine, lonely):
    wait_until(lambda: engine.inspect(lonely, ".State.Health.Status") == "healthy", "a healthy peer", 60)
    assert engine.docker("exec", lonely, "id", "-u") != "0"
    status = engine.docker("exec", lonely, "thanos-peer", "status", "--timeout", "60", "--json")
    assert json.loads(status)["answer"]["id"] == 0
    began = time.monotonic()
    engine.docker("stop", "--time", "60", lonely)
    # It ended by itself, and was not killed.
    assert time.monotonic() - began < 50
    assert engine.inspect(lonely, ".State.ExitCode") == "143"
    assert "SIGTERM: finishing the round" in engine.logs(lonely)


def test_a_container_gets_its_own_secret_only_and_can_write_nowhere_else(engine, lonely):
    assert engine.docker("exec", lonely, "ls", "/run/secrets") == "key"
    mounts = json.loads(engine.docker("inspect", "--format", "{{json .Mounts}}", lonely))
    assert {mount["Destination"] for mount in mounts if mount["RW"]} == {"/results", "/state"}
    assert engine.inspect(lonely, ".HostConfig.ReadonlyRootfs") == "true"
    assert engine.inspect(lonely, ".HostConfig.Memory") == str(192 * 2**20)
    assert engine.inspect(lonely, "json .HostConfig.RestartPolicy") == (
        '{"Name":"on-failure","MaximumRetryCount":50}'
    )


def test_data_that_its_user_cannot_read_is_named_with_that_user(engine, image, tmp_path):  # noqa: ARG001
    def change(raw):
        raw["problem"]["data"] = {"kind": "files"}
        raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
        for peer in raw["peers"]:
            np.save(tmp_path / f"{peer['id']}.npy", np.ones((3, 6)))
            peer["data"] = f"{peer['id']}.npy"

    write_topology(tmp_path / "topology.toml", "path", 2, change=change)
    (tmp_path / "0.npy").chmod(0o600)
    mounts = [
        part for name in ("topology.toml", "0.npy") for part in ("-v", f"{tmp_path}/{name}:/network/{name}:ro")
    ]
    start = ("run", "--rm", "--network", "none", *mounts, image, "start", "--id", "0")
    done = subprocess.run(["docker", *start], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert "/network/0.npy of peer 0 cannot be read by user 10001, group 10001: Permission denied" in done.stderr


def test_an_image_with_the_extra_reads_parquet(engine, clean_copy, tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def change(raw):
        raw["problem"]["data"] = {"kind": "files"}
        raw["algorithm"]["start"] = {"kind": "random", "seed": 1}
        for peer in raw["peers"]:
            samples = np.random.default_rng(peer["id"]).standard_normal((9, 6))
            columns = {f"f{i}": column for i, column in enumerate(samples.T)}
            parquet.write_table(pa.table(columns), tmp_path / f"{peer['id']}.parquet")
            peer["data"] = f"{peer['id']}.parquet"

    copy = shutil.copytree(clean_copy, tmp_path / "copy")
    make(copy, "image", "EXTRAS=parquet", "IMAGE=thanos-peer:parquet")
    topology, project = write_topology(tmp_path / "net.toml", "path", 2, change=change), tmp_path / "project"
    call("compose", topology.file, "-o", project, "--image", "thanos-peer:parquet")
    with engine.project(project):
        engine.compose(project, "up")
    assert "same bits" in call("verify", topology.file, "--results", project / "results").stdout
    engine.docker("rmi", "thanos-peer:parquet")


def test_a_wheel_of_an_earlier_state_is_refused(engine, image, clean_copy, tmp_path):  # noqa: ARG001
    later = shutil.copytree(clean_copy, tmp_path / "later")
    with (later / "thanos_peer/errors.py").open("a", encoding="utf-8") as file:
        file.write("# mended\n")
    build = ("build", "--network", "none", "--file", later / "docker/Dockerfile", later)
    done = subprocess.run(["docker", *build], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "docker/wheels is not of this source: run make wheels" in done.stdout + done.stderr


def test_the_image_says_what_it_is_and_sets_the_threads_of_blas(engine, image):
    config = json.loads(engine.docker("image", "inspect", "--format", "{{json .Config}}", image))
    assert config["Labels"]["org.opencontainers.image.title"] == "thanos-peer"
    assert f"thanos-peer:{config['Labels']['org.opencontainers.image.version']}" == image
    assert "OPENBLAS_NUM_THREADS=1" in config["Env"]
    assert config["User"] == "10001:10001"
    assert set(config["Volumes"]) == {"/results", "/state"}

"""What `thanos-peer compose` writes, read by a real YAML parser; tests/docker has the engines."""

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from cli.commands import call
from deploy.test_hosts import give_files
from namespaces import need
from own_code.classes import MODULE
from processes import write_topology
from programs import run

from thanos_peer.deploy.containers import IMAGE, memory_of
from thanos_peer.topology import load
from thanos_peer.transport.keys import credentials_of, secret_directory, secret_file

ROOT = Path(__file__).parents[2]


def written(tmp_path, *options, change=None, has_keys=False):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, change=change, has_keys=has_keys)
    call("compose", topology.file, "-o", tmp_path / "project", *options)
    return topology, tmp_path / "project"


def read(file):
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def check_by_compose(directory):
    """Have compose itself read its file; it looks for the directory to build from, too."""
    need("docker-compose", is_root=False)
    run("docker-compose", "config", cwd=directory)


def unencrypted(raw):
    raw["unencrypted"] = "anyone on the network can read and change everything"


def credentials(topology, agent):
    """What the user of the containers finds, who may not be the one who runs the tests."""
    os.chown(secret_file(secret_directory(topology.file), agent), os.geteuid(), -1)
    return credentials_of(topology, agent, None)


def test_there_is_a_service_per_peer_on_an_internal_network(tmp_path):
    _, directory = written(tmp_path)
    content = read(directory / "compose.yaml")
    assert set(content["services"]) == {f"peer-{i}" for i in range(4)}
    assert content["networks"] == {"mesh": {"internal": True}}
    for i in range(4):
        service = content["services"][f"peer-{i}"]
        assert service["environment"]["THANOS_PEER_ID"] == str(i)
        # Containers that fail again and again are left alone in the end.
        assert service["restart"] == "on-failure:50"
        assert service["networks"] == ["mesh"]
        assert service["healthcheck"]["test"] == ["CMD", "python", "-m", "thanos_peer.peer.health"]
        assert (service["mem_limit"], service["cpus"]) == ("192m", 1.0)
        assert f"state-{i}:/state" in service["volumes"]


def test_the_run_is_the_same_and_every_peer_has_its_own_secret(tmp_path):
    topology, directory = written(tmp_path)
    moved = load(directory / "topology.toml")
    assert moved.digest == topology.digest
    assert [peer.address for peer in moved.peers] == [f"tcp://peer-{i}:17000" for i in range(4)]
    for i in range(4):
        assert credentials(moved, i).agent == i
        secret = directory / f"topology.keys/{i}.secret"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        for name in ("compose.yaml", "stack.yaml"):
            content = read(directory / name)
            (given,) = content["services"][f"peer-{i}"]["secrets"]
            assert content["secrets"][given["source"]] == {"file": f"./topology.keys/{i}.secret"}


def test_keys_that_are_there_already_are_used(tmp_path):
    topology, directory = written(tmp_path, has_keys=True)
    moved = load(directory / "topology.toml")
    assert [peer.public_key for peer in moved.peers] == [peer.public_key for peer in topology.peers]
    assert credentials(moved, 2).pair == credentials(topology, 2).pair


def test_an_unencrypted_topology_has_no_secrets(tmp_path):
    _, directory = written(tmp_path, change=unencrypted)
    assert not (directory / "topology.keys").exists()
    for name in ("compose.yaml", "stack.yaml"):
        assert "secret" not in (directory / name).read_text(encoding="utf-8").lower()


def test_every_peer_sees_its_own_data_only_and_in_its_format(tmp_path):
    def give_text(raw):
        give_files(raw)
        for peer in raw["peers"]:
            peer["data"] = f"private/{peer['id']}.csv"

    (tmp_path / "private").mkdir()
    for i in range(4):
        np.savetxt(tmp_path / f"private/{i}.csv", np.ones((3, 6)), delimiter=",")
    _, directory = written(tmp_path, change=give_text)
    assert load(directory / "topology.toml", data_of=()).peers[2].data == "/data/2.csv"
    for name in ("compose.yaml", "stack.yaml"):
        for i in range(4):
            mounts = read(directory / name)["services"][f"peer-{i}"]["volumes"]
            (data,) = [mount for mount in mounts if isinstance(mount, dict)]
            assert data["source"] == str(tmp_path / f"private/{i}.csv")
            assert (data["target"], data["read_only"]) == (f"/data/{i}.csv", True)


def test_a_swarm_counts_restarts_per_time_and_leaves_readers_alone(tmp_path):
    _, directory = written(tmp_path)
    task = read(directory / "stack.yaml")["services"]["peer-1"]
    policy = {"condition": "on-failure", "delay": "2s", "max_attempts": 50, "window": "6h"}
    assert task["deploy"]["restart_policy"] == policy
    assert task["healthcheck"]["start_period"] == "24h"


def name_code_and_start(raw):
    raw["problem"]["regularizer"] = "mine:Ridge"
    raw["algorithm"]["start"] = {"kind": "file", "path": "begin here.npy"}


@pytest.fixture
def code(tmp_path):
    """The files that `name_code_and_start` names; the path of the code."""
    np.save(tmp_path / "begin here.npy", np.eye(6, 2))
    (tmp_path / "mine.py").write_text(MODULE, encoding="utf-8")
    return tmp_path / "mine.py"


@pytest.mark.parametrize("options", [(), ("--portable",)])
def test_code_and_a_start_go_along_and_peers_may_run_that_code_alone(tmp_path, code, options):
    allowed = ("--allow-code", code, "--allow-code", "another")
    before = os.umask(0o077)
    try:
        topology, directory = written(tmp_path, *options, *allowed, change=name_code_and_start)
    finally:
        os.umask(before)
    moved = load(directory / "topology.toml")
    assert moved.digest == topology.digest
    assert moved.algorithm.start.path == "files/start.npy"
    assert (directory / "files/mine.py").read_bytes() == code.read_bytes()
    assert {stat.S_IMODE(file.stat().st_mode) for file in (directory / "files").iterdir()} == {0o644}
    assert stat.S_IMODE((directory / "files").stat().st_mode) == 0o755
    for name in ("compose.yaml",) if options else ("compose.yaml", "stack.yaml"):
        services = read(directory / name)["services"]
        assert services["peer-2"]["environment"]["THANOS_PEER_ALLOW_CODE"] == "/network/files/mine.py"
        if not options:
            assert "./files:/network/files:ro" in services["peer-2"]["volumes"]
        else:
            assert "cp -r /project/files /network/" in services["prepare"]["command"][0]
            assert services["outcome"]["environment"] == {"THANOS_PEER_ALLOW_CODE": "/tmp/check/files/mine.py"}  # noqa: S108


def test_a_module_of_the_image_is_allowed_by_its_name(tmp_path, code):
    _, directory = written(tmp_path, "--allow-code", "mine", change=name_code_and_start)
    service = read(directory / "compose.yaml")["services"]["peer-0"]
    assert service["environment"]["THANOS_PEER_ALLOW_CODE"] == "mine"
    assert [file.name for file in (directory / "files").iterdir()] == ["start.npy"]
    assert not code.with_name("imported").exists()


@pytest.mark.parametrize("command", ["compose", "kubernetes"])
def test_code_is_not_allowed_by_the_way(tmp_path, code, command, monkeypatch):
    topology = write_topology(tmp_path / "net.toml", "path", 2, change=name_code_and_start)
    monkeypatch.setenv("THANOS_PEER_ALLOW_CODE", str(code))  # for this host, and no other
    error = call(command, topology.file, "-o", tmp_path / "x", code=3).stderr
    assert 'problem.regularizer = "mine:Ridge" is Python code that peers would run' in error
    gone = tmp_path / "gone" / "mine.py"
    error = call(command, topology.file, "-o", tmp_path / "x", "--allow-code", gone, code=3).stderr
    assert f"--allow-code {gone}: there is no such file" in error
    assert not (tmp_path / "x").exists()


def test_data_that_the_peers_user_could_not_read_is_refused(tmp_path):
    (tmp_path / "private").mkdir()
    for i in range(4):
        np.save(tmp_path / f"private/{i}.npy", np.ones((3, 6)))
    topology = write_topology(tmp_path / "net.toml", "ring", 4, change=give_files)
    (tmp_path / "private/2.npy").chmod(0o600)
    error = call("compose", topology.file, "-o", tmp_path / "x", "--user", "54321:54321", code=3).stderr
    assert f"{tmp_path}/private/2.npy of peer 2 cannot be read by user 54321:54321" in error
    assert not (tmp_path / "x").exists()


@contextlib.contextmanager
def without_privileges():
    """A directory, and not being root while we are there."""
    with tempfile.TemporaryDirectory() as place:
        user = os.geteuid()
        os.chown(place, user or 54321, -1)
        os.seteuid(user or 54321)
        try:
            yield Path(place)
        finally:
            os.seteuid(user)


def test_nothing_is_replaced_where_things_cannot_be_given_to_the_peers_user():
    with without_privileges() as place:
        topology = write_topology(place / "net.toml", "path", 2)
        to = ("compose", topology.file, "-o", place / "project", "--user")
        error = call(*to, "5:5", code=3).stderr
        assert f"what is in {place}/project cannot be given to user 5:5; leave out --user" in error
        call(*to, f"{os.geteuid()}:{os.getegid()}")  # no --force: nothing has been written
        before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        assert "cannot be given" in call(*to, "5:5", "--force", code=3).stderr
        assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_the_memory_of_a_peer_has_room_for_the_gram_matrix_of_a_file_that_is_elsewhere(tmp_path):
    def change(raw):
        give_files(raw)
        raw["problem"]["n"] = 1000

    (tmp_path / "private").mkdir()
    for i in range(4):
        np.save(tmp_path / f"private/{i}.npy", np.ones((3, 1000)))
    topology = write_topology(tmp_path / "net.toml", "ring", 4, change=change)
    few = memory_of(topology)
    (tmp_path / "private/2.npy").unlink()
    assert memory_of(topology) >= few + 7 * 8 * 1000**2 // 2**20
    np.save(tmp_path / "private/2.npy", np.ones((5000, 1000), dtype=np.int8))
    assert memory_of(topology) >= few + 7 * 8 * 1000**2 // 2**20


def test_the_memory_of_a_peer_has_room_for_the_sums_over_pairs_where_values_may_be_missing(tmp_path):
    memory = []
    (tmp_path / "private").mkdir()
    for i in range(4):
        np.save(tmp_path / f"private/{i}.npy", np.ones((1001, 1000), dtype=np.int8))
    for missing in ("refuse", "mean"):

        def change(raw, missing=missing):
            give_files(raw)
            raw["problem"]["n"] = 1000
            raw["problem"]["data"]["missing"] = missing

        memory.append(memory_of(write_topology(tmp_path / "net.toml", "ring", 4, change=change)))
    assert memory[1] >= memory[0] + 5 * 8 * 1000**2 // 2**20


def parquet_for_two(tmp_path):
    """A change that gives two of four peers Parquet files."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def change(raw):
        give_files(raw)
        (tmp_path / "private").mkdir()
        for peer in raw["peers"]:
            samples = np.random.default_rng(peer["id"]).standard_normal((2**20, 6))
            if peer["id"] in (1, 3):
                peer["data"] = f"private/{peer['id']}.PARQUET"
                columns = {f"f{i}": column for i, column in enumerate(samples.T)}
                parquet.write_table(pa.table(columns), tmp_path / peer["data"])
            else:
                np.save(tmp_path / peer["data"], samples[:9])

    return change


def test_parquet_files_need_an_image_that_reads_them_and_room_for_a_row_group(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "ring", 4, change=parquet_for_two(tmp_path))
    note = "Note: the data of peer 1, 3 is in Parquet files, which the image reads only if it was built with the"
    for command in ("compose", "kubernetes"):
        said = call(
            command, topology.file, "-o", tmp_path / command, *(["--build", ".."] * (command == "compose"))
        )
        assert said.stderr.startswith(note)
        assert "make image EXTRAS=parquet" in said.stderr
    services = read(tmp_path / "compose/compose.yaml")["services"]
    assert services["peer-0"]["build"]["args"] == {"EXTRAS": "parquet"}
    # 2^20 rows of 6 numbers are 48 MiB.
    assert memory_of(topology) >= 192 + 64 + 2 * 48
    assert int(services["peer-0"]["mem_limit"].rstrip("m")) == memory_of(topology)


def test_who_has_no_parquet_files_hears_nothing_of_them(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    for command in ("compose", "kubernetes"):
        assert call(command, topology.file, "-o", tmp_path / command).stderr == ""


def test_the_limits_the_image_and_the_user_can_be_chosen(tmp_path):
    _, directory = written(
        tmp_path, "--memory", 512, "--cpus", 0.5, "--image", "mine:1", "--user", f"{os.getuid()}:{os.getgid()}"
    )
    service = read(directory / "compose.yaml")["services"]["peer-1"]
    assert (service["mem_limit"], service["cpus"], service["image"]) == ("512m", 0.5, "mine:1")
    assert service["user"] == f"{os.getuid()}:{os.getgid()}"
    limits = read(directory / "stack.yaml")["services"]["peer-1"]["deploy"]["resources"]["limits"]
    assert limits == {"cpus": "0.5", "memory": "512M"}


@pytest.mark.parametrize(
    ("option", "wrong", "words"),
    [
        ("--image", "", "'' is not the name of an image"),
        ("--image", "two words", "'two words' is not the name of an image"),
        ("--image", "$IMAGE", "'$IMAGE' is not the name of an image"),
        ("--cpus", "1e-9", "1e-09 is not in the range x>=0.01"),
        ("--cpus", "inf", "inf is not a finite number"),
    ],
)
@pytest.mark.parametrize("command", ["compose", "kubernetes"])
def test_what_no_engine_would_take_is_refused(tmp_path, command, option, wrong, words):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    error = call(command, topology.file, "-o", tmp_path / "x", f"{option}={wrong}", code=2).stderr
    assert f"Invalid value for '{option}': {words}" in error
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("image", ["registry.example:5000/lab/peer_a:1.0-rc", "[fd00::2]:5000/x@sha256:ab"])
def test_an_image_may_come_from_anywhere(tmp_path, image):
    _, directory = written(tmp_path, "--image", image)
    assert read(directory / "compose.yaml")["services"]["peer-0"]["image"] == image


def test_no_service_runs_as_root_unless_asked_for(tmp_path):
    _, directory = written(tmp_path)
    assert not read(directory / "compose.yaml")["services"]["peer-0"]["user"].startswith("0:")


def test_asking_for_root_leaves_the_files_with_their_owner(tmp_path):
    _, directory = written(tmp_path, "--user", "0:0")
    assert read(directory / "compose.yaml")["services"]["peer-0"]["user"] == "0:0"
    assert (directory / "topology.keys/0.secret").stat().st_uid == os.getuid()


def test_a_portable_directory_holds_no_secret_and_sums_up(tmp_path):
    _, directory = written(tmp_path, "--portable", "--build", "..")
    assert sorted(path.name for path in directory.iterdir()) == [".env", "compose.yaml", "topology.toml"]
    services = read(directory / "compose.yaml")["services"]
    assert set(services) == {"prepare", "outcome", *(f"peer-{i}" for i in range(4))}
    assert set(services["outcome"]["depends_on"]) == {f"peer-{i}" for i in range(4)}
    assert services["peer-3"]["depends_on"] == {"prepare": {"condition": "service_completed_successfully"}}


@pytest.mark.parametrize(
    ("options", "change", "builder"),
    [(("--portable",), None, "prepare"), (("--portable",), unencrypted, "peer-0"), ((), None, "peer-0")],
)
def test_one_service_builds_the_image_and_all_others_wait_for_it(tmp_path, options, change, builder):
    _, directory = written(tmp_path, *options, "--build", "..", change=change)
    services = read(directory / "compose.yaml")["services"]
    built = {name: service["build"] for name, service in services.items() if "build" in service}
    assert built == {builder: {"context": "..", "dockerfile": "docker/Dockerfile"}}
    assert {(service["image"], service["pull_policy"]) for service in services.values()} == {(IMAGE, "never")}
    for name in set(services) - {builder, "outcome"}:
        assert set(services[name]["depends_on"]) == {builder}
    check_by_compose(directory)


def test_a_directory_to_build_from_may_have_any_name(tmp_path):
    source = tmp_path / "my $HOME ${x}"
    source.mkdir()
    _, directory = written(tmp_path, "--build", source)
    context = read(directory / "compose.yaml")["services"]["peer-0"]["build"]["context"]
    assert context == f"{tmp_path}/my $$HOME $${{x}}"
    check_by_compose(directory)


def test_an_image_that_is_not_built_here_may_be_pulled(tmp_path):
    _, directory = written(tmp_path)
    for service in read(directory / "compose.yaml")["services"].values():
        assert not {"build", "pull_policy", "depends_on"} & set(service)


def run_inside(place, service):
    """Do what a service does, with directories of ours in the place of the container's; what it says."""
    script = re.sub(r"(?<=[ \n=])/(tmp|network|states|results|project)\b", rf"{place}/\1", service["command"][0])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return run("sh", "-ec", script.replace("$$", "$"), env={"PATH": path})


def test_results_of_a_larger_ring_are_not_mixed_with_those_of_a_smaller_one(tmp_path):
    need("diff")
    _, directory = written(tmp_path, "--portable")
    outcome = read(directory / "compose.yaml")["services"]["outcome"]
    outcome["command"] = [re.sub(r"^setpriv .*\n", "", outcome["command"][0], flags=re.MULTILINE)]  # the verdict
    for name in ("project", "results/peers", "tmp"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    here, there = tmp_path / "project/results", tmp_path / "results/peers"
    for names, words in (
        ("0123", ""),
        ("0123", ""),
        ("012", "results/ was of another run: it is kept as results."),
    ):
        shutil.rmtree(there)
        there.mkdir()
        for name in names:
            (there / f"{name}.npz").write_text(f"{name} of {names}", encoding="ascii")
        said = run_inside(tmp_path, outcome)
        assert said.startswith(words)
        assert bool(said) == bool(words)
        found = {path.name: path.read_text(encoding="ascii") for path in (here / "peers").iterdir()}
        assert found == {f"{name}.npz": f"{name} of {names}" for name in names}
    (kept,) = (tmp_path / "project").glob("results.*")
    assert {path.name for path in (kept / "peers").iterdir()} == {f"{name}.npz" for name in "0123"}


def test_no_secret_is_left_in_an_image_or_a_container(tmp_path):
    need("install")
    _, directory = written(tmp_path, "--portable", "--build", "..")
    prepare = read(directory / "compose.yaml")["services"]["prepare"]
    assert prepare["read_only"]
    assert prepare["tmpfs"] == ["/tmp"]  # noqa: S108 - gone with the container's end
    assert {volume.split(":")[1] for volume in prepare["volumes"]} == {
        *("/project", "/network"),
        *(f"/states/{i}" for i in range(4)),
    }
    inside = tmp_path / "inside"
    for name in ("tmp", "network", *(f"states/{i}" for i in range(4))):
        (inside / name).mkdir(parents=True)
    (inside / "project").symlink_to(directory)
    run_inside(inside, prepare)
    made = load(inside / "network/topology.toml")
    assert {file.name for file in (inside / "network").iterdir()} == {"topology.toml", "original"}
    for i in range(4):
        (key,) = (inside / f"states/{i}").iterdir()
        assert (key.name, key.stat().st_uid) == ("key", 10001)
        os.chown(key, os.geteuid(), -1)
        assert credentials_of(made, i, key).agent == i
    ignored = (ROOT / ".dockerignore").read_text(encoding="ascii").split()
    last = max(number for number, line in enumerate(ignored) if line.startswith("!"))
    assert ignored[0] == "*"
    assert {"**/*.secret", "**/*.keys"} <= set(ignored[last:])


def test_a_directory_that_holds_something_is_left_alone_unless_told(tmp_path):
    topology, directory = written(tmp_path)
    before = (directory / "topology.toml").read_bytes()
    error = call("compose", topology.file, "-o", directory, code=3).stderr
    assert f"{directory} exists already" in error
    assert (directory / "topology.toml").read_bytes() == before
    call("compose", topology.file, "-o", directory, "--force")
    assert (directory / "topology.toml").read_bytes() != before  # new keys


def test_results_of_another_network_are_not_left_to_its_peers(tmp_path):
    topology, directory = written(tmp_path)
    call("run", topology.file, "--out", directory / "results", "--quiet")
    call("compose", topology.file, "-o", directory, "--force")  # the same run, with other keys
    before = (directory / "topology.toml").read_bytes()
    other = write_topology(tmp_path / "other.toml", "ring", 4, max_rounds=61)
    for options in ((), ("--portable",)):
        error = call("compose", other.file, "-o", directory, "--force", *options, code=3).stderr
        if not options:
            assert f"{directory}/results/peers/0.json is a result of another topology than {other.file}" in error
            assert f"`docker compose down --volumes` in {directory}, and remove {directory}/results" in error
    assert (directory / "topology.toml").read_bytes() == before
    shutil.rmtree(directory / "results")
    call("compose", other.file, "-o", directory, "--force")


def test_nothing_of_a_larger_network_stays_behind(tmp_path, code):
    _, directory = written(tmp_path, "--allow-code", code, change=name_code_and_start)
    (directory / "files/mine.txt").touch()
    (directory / "topology.keys/notes").touch()
    smaller = write_topology(tmp_path / "smaller.toml", "path", 2)
    call("compose", smaller.file, "-o", directory, "--force")
    left = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    own = {"files/mine.txt", "topology.keys/notes"}  # not ours to remove
    files = {".env", "compose.yaml", "stack.yaml", "topology.toml"}
    assert left == files | own | {"topology.keys/0.secret", "topology.keys/1.secret"}
    for name in own:
        (directory / name).unlink()
    bare = write_topology(tmp_path / "bare.toml", "path", 2, change=unencrypted)
    call("compose", bare.file, "-o", directory, "--force")
    assert {path.name for path in directory.iterdir()} == files | {"results"}


def test_files_of_a_directory_that_belongs_to_others_stay(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    own = [tmp_path / "own" / name for name in ("files/start.npy", "files/x.py", "topology.keys/7.secret")]
    for path in own:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for command in ("compose", "kubernetes"):
        call(command, topology.file, "-o", tmp_path / "own", "--force")
    assert all(path.exists() for path in own)


def test_every_directory_is_a_project_of_its_own(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, name="Lab_7.North")
    names = []
    for place, options in (
        ("a/project", ()),
        ("b/project", ()),
        ("a/project", ("--force",)),
        ("c", ("--portable",)),
    ):
        call("compose", topology.file, "-o", tmp_path / place, *options)
        text = (tmp_path / place / ".env").read_text(encoding="ascii")
        names.append(re.search(r"^COMPOSE_PROJECT_NAME=(.+)$", text, re.MULTILINE).group(1))
    first, second, again, portable = names
    assert first == again != second
    assert portable == "thanos-peer-lab_7-north"  # nothing of this machine
    assert all(re.fullmatch(r"thanos-peer-lab_7-north(-[0-9a-f]{8})?", name) for name in names)


@pytest.mark.parametrize("user", ["me", "1000", "1000:", "-1:0", "1000:1000:1"])
def test_a_user_that_is_no_pair_of_numbers_is_refused(tmp_path, user):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    assert "two numbers" in call("compose", topology.file, "-o", tmp_path / "x", f"--user={user}", code=3).stderr


def test_what_is_for_others_is_not_written_beside_secrets(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2)
    again = ("compose", topology.file, "-o", tmp_path / "x", "--force")
    call(*again)
    before = (tmp_path / "x/compose.yaml").read_bytes()
    error = call(*again, "--portable", code=3).stderr
    assert (
        f"--portable: {tmp_path}/x/topology.keys and {tmp_path}/x/stack.yaml of an earlier call must not" in error
    )
    assert (tmp_path / "x/compose.yaml").read_bytes() == before
    shutil.rmtree(tmp_path / "x/topology.keys")
    assert f"--portable: {tmp_path}/x/stack.yaml of an" in call(*again, "--portable", code=3).stderr
    (tmp_path / "x/stack.yaml").unlink()
    # results/ may well belong to a portable network.
    call(*again, "--portable")


def test_portable_goes_with_neither_a_user_nor_data_files_nor_keys(tmp_path):
    topology = write_topology(tmp_path / "plain.toml", "path", 2)
    portable = ("compose", topology.file, "-o", tmp_path / "x", "--portable")
    assert "--portable: --user 5:5 is of this" in call(*portable, "--user", "5:5", code=3).stderr
    assert not (tmp_path / "x").exists()
    topology = write_topology(tmp_path / "net.toml", "path", 2, has_keys=True)
    assert "has keys" in call("compose", topology.file, "-o", tmp_path / "x", "--portable", code=3).stderr
    (tmp_path / "private").mkdir()
    for i in range(2):
        np.save(tmp_path / f"private/{i}.npy", np.ones((3, 6)))
    topology = write_topology(tmp_path / "other.toml", "path", 2, change=give_files)
    assert "data files" in call("compose", topology.file, "-o", tmp_path / "x", "--portable", code=3).stderr


def exact(raw):
    raw["algorithm"] = {"method": "gram"}


def test_rules_go_along_to_where_a_host_has_its_own(tmp_path):
    rules = tmp_path / "site.toml"
    rules.write_text("masked_sums = true\nleast_coalition = 2\n", encoding="utf-8")
    topology, directory = written(tmp_path, "--policy", rules, change=exact)
    copy = directory / "policy.toml"
    assert copy.read_bytes() == rules.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o644
    content, stack = read(directory / "compose.yaml"), read(directory / "stack.yaml")
    users = {content["x-peer"]["user"], stack["x-peer"]["user"]}
    assert users == {f"{copy.stat().st_uid}:{copy.stat().st_gid}"}
    for service in content["services"].values():
        assert "./policy.toml:/etc/thanos-peer/policy.toml:ro" in service["volumes"]
    assert stack["configs"]["policy"] == {"file": "./policy.toml"}
    for service in stack["services"].values():
        assert {"source": "policy", "target": "/etc/thanos-peer/policy.toml"} in service["configs"]
    check_by_compose(directory)
    call("compose", topology.file, "-o", directory, "--force")
    assert not copy.exists()
    assert "policy" not in (directory / "compose.yaml").read_text(encoding="utf-8").replace("restart_policy", "")


def test_rules_that_the_peers_would_break_are_no_reason_to_write_anything(tmp_path):
    rules = tmp_path / "site.toml"
    rules.write_text("masked_sums = true\nno_sole_neighbor = true\n", encoding="utf-8")
    for name in ("compose", "kubernetes"):
        topology = write_topology(tmp_path / f"{name}.toml", "ring", 4)
        words = call(name, topology.file, "-o", tmp_path / name, "--policy", rules, code=3).stderr
        assert f"{rules} does not let peer 0 take part in {topology.file}: 2 rules are broken" in words
        assert not (tmp_path / name).exists()


def test_rules_of_this_site_are_not_for_others(tmp_path):
    rules = tmp_path / "site.toml"
    rules.write_text("encryption = true\n", encoding="utf-8")
    topology = write_topology(tmp_path / "net.toml", "ring", 4)
    words = call(
        "compose", topology.file, "-o", tmp_path / "project", "--portable", "--policy", rules, code=3
    ).stderr
    assert f"--portable: --policy {rules} has rules of this site" in words

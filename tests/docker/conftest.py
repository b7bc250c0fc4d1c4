import shutil
from pathlib import Path

import pytest
from docker.engine import make, some_engine
from programs import run

from thanos_peer.deploy.containers import IMAGE

ROOT = Path(__file__).parents[2]
# Seconds: the first test waits for engine, base image, wheels and build, each with a limit of its own.
LIMIT = 3600


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("docker"):
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session")
def engine():
    with some_engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def clean_copy(tmp_path_factory):
    """The repository as a clone has it: what git keeps, as it is here now."""
    copy = tmp_path_factory.mktemp("copy") / "thanos-peer"
    for name in run("git", "-c", "safe.directory=*", "ls-files", "-z", cwd=ROOT).rstrip("\0").split("\0"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="session")
def image(engine, clean_copy):
    """The image, built as docs/containers.md says, with no network but for fetching the wheels."""
    make(clean_copy, "wheels")
    dockerfile = clean_copy / "docker/Dockerfile"
    engine.docker("build", "--network", "none", "--file", dockerfile, "--tag", IMAGE, clean_copy, seconds=600)
    return IMAGE

"""What the image and its containers cost: size, time to build and to start, memory.

python benchmarks/images.py [--peers 8]      (needs an engine with compose; offline, `make wheels` first)
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from thanos_peer.deploy.containers import IMAGE

ROOT = Path(__file__).parents[1]
PATIENCE = 300.0
SIZE_OF = ("docker", "image", "inspect", "--format", "{{.Size}}")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """A command's output, or its complaint and the end."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


def compose() -> list[str]:
    """The compose command of this machine."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        sys.exit("neither `docker compose` nor docker-compose is here")
    return ["docker-compose"]


def measure_build() -> None:
    """Build without the cache, and look at the size."""
    began = time.monotonic()
    run("docker", "build", "--no-cache", "--file", ROOT / "docker/Dockerfile", "--tag", IMAGE, ROOT)
    source = "wheels" if any((ROOT / "docker/wheels").glob("*.whl")) else "what pip fetched"
    print(f"time to build      {time.monotonic() - began:.1f} s, from {source}")
    size = int(run(*SIZE_OF, IMAGE))
    print(f"image              {size / 1e6:.0f} MB, {_share_of_base()}")


def _share_of_base() -> str:
    """How much of an image is not ours; BuildKit keeps a base where the engine does not list it."""
    dockerfile = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
    (base,) = re.findall(r"^ARG BASE=(.+)$", dockerfile, re.MULTILINE)
    done = subprocess.run([*SIZE_OF, base], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"its base included, whose size is unknown (`docker pull {base}` first)"
    return f"of which the base is {int(done.stdout) / 1e6:.0f} MB"


def measure_network(peers: int, directory: Path) -> None:
    """Start a ring that does not end, and look at it when the last peer is past the first round."""
    engine = [*compose(), "--project-name", f"thanos-peer-images-{os.getpid()}"]  # of this run only
    ring, project = directory / "ring.toml", directory / "project"
    command = [sys.executable, "-m", "thanos_peer"]
    endless = ("--method", "thanos", "--rounds", "100000000", "--tolerance", "0")
    new = ("topology", "new", "ring", "--peers", str(peers), *endless)
    run(*command, *new, "-o", ring)
    run(*command, "compose", ring, "-o", project)
    began = time.monotonic()
    try:
        run(*engine, "up", "-d", cwd=project)
        print(f"time to start      {time.monotonic() - began:.1f} s for {peers} containers")
        names = [f"peer-{i}" for i in range(peers)]
        containers = [run(*engine, "ps", "--quiet", name, cwd=project) for name in names]
        while not _is_under_way(containers[-1]):
            if time.monotonic() - began > PATIENCE:
                sys.exit(f"not under way within {PATIENCE:.0f} s")
            time.sleep(0.2)
        print(f"until round 1      {time.monotonic() - began:.1f} s")
        used = run("docker", "stats", "--no-stream", "--format", "{{.MemUsage}}", *containers).splitlines()
        print(f"memory             {', '.join(each.split(' / ')[0] for each in used)}")
    finally:
        run(*engine, "down", "--volumes", "--timeout", "1", cwd=project)


def _is_under_way(container: str) -> bool:
    ask = ["docker", "exec", container, "thanos-peer", "status", "--json"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    return done.returncode == 0 and json.loads(done.stdout)["answer"]["round"] > 0


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=8)
    peers = parser.parse_args().peers
    measure_build()
    with tempfile.TemporaryDirectory() as directory:
        measure_network(peers, Path(directory))


if __name__ == "__main__":
    main()

"""A container engine for tests: the one that runs, or our own, in a network namespace that leads nowhere.

Whatever an engine does to the network (bridges, rules, forwarding) it does in that namespace, and goes with it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from namespaces import TAG, ip, need, skip
from processes import wait_until
from programs import run

DOCKERFILE = Path(__file__).parents[2] / "docker/Dockerfile"
(BASE,) = re.findall(r"^ARG BASE=(.+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
MEMORY = Path("/dev/shm")  # noqa: S108 - an engine is several times quicker where nothing is flushed

# Rounds of a run that is to be disturbed: many times what passes before it can be held.
LONG = 3000
# Seconds that another test session gets to be done with its engine.
OTHERS = 900


class Engine:
    """`docker` and `docker compose`, or docker-compose 1 where there is no other."""

    def __init__(self):
        has_plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        self._compose = ["docker", "compose"] if has_plugin.returncode == 0 else ["docker-compose"]
        if shutil.which(self._compose[0]) is None:
            skip("needs `docker compose` or docker-compose")

    def docker(self, *arguments, seconds=300):
        return run("docker", *arguments, seconds=seconds).strip()

    def compose(self, directory, *arguments, seconds=300, check=True):
        done = subprocess.run(
            [*self._compose, *arguments],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=os.environ | {"COMPOSE_PROJECT_NAME": project_of(directory)},
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr + self._log_tail(directory)
        return done

    def _log_tail(self, directory):
        """What the containers of a project have said."""
        logs = self.compose(directory, "logs", "--no-color", "--tail", "20", check=False)
        return logs.stdout + logs.stderr

    @contextlib.contextmanager
    def project(self, directory):
        """A compose project that is gone afterwards, with all its volumes."""
        try:
            yield
        finally:
            self.compose(directory, "down", "--volumes", "--timeout", "1", check=False)

    def container(self, directory, service):
        return self.compose(directory, "ps", "--all", "--quiet", service).stdout.strip()

    def inspect(self, container, what):
        return self.docker("inspect", "--format", f"{{{{{what}}}}}", container)

    def logs(self, container):
        done = subprocess.run(
            ["docker", "logs", container], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def round_of(self, container):
        """The round that a peer says it is in; -1 if it does not answer yet."""
        ask = ["docker", "exec", container, "thanos-peer", "status", "--json"]
        done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=60)
        return json.loads(done.stdout)["answer"]["round"] if done.returncode == 0 else -1

    def hold(self, holder, container):
        """Pause a peer once another says that the run is under way; asking takes seconds, so it is held then."""

        def is_under_way():
            self.docker("pause", holder)
            # More rounds than can pass without the peer that is paused.
            if self.round_of(container) > 20:
                return True
            self.docker("unpause", holder)
            time.sleep(0.3)  # a small part of the run
            return False

        wait_until(lambda: "listening" in self.logs(holder), "a peer that listens")
        wait_until(is_under_way, "a run that is under way")

    def kill(self, container):
        """kill -9 of its process from outside, which the restart policy answers; of nothing else."""
        pid = int(self.inspect(container, ".State.Pid"))
        assert pid > 1, f"{container} has ended"
        assert "thanos-peer" in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"), f"{pid} is another's"
        os.kill(pid, signal.SIGKILL)

    def wait_for_end(self, containers, seconds=600):
        """Their exit codes."""
        return [int(code) for code in self.docker("wait", *containers, seconds=seconds).split()]


def project_of(directory):
    """A project name of its own: on an engine that runs already there may be any other."""
    return f"{TAG}-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]}"


def make(directory, *arguments):
    """Call make with the Python of these tests."""
    run("make", "--silent", *arguments, f"VENV={sys.prefix}", cwd=directory, seconds=600)


def is_running():
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=60).returncode == 0


def _is_ours(lock):
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def some_engine():
    """The engine that runs here already, or one of our own; only one test session at a time."""
    with (Path(tempfile.gettempdir()) / "thanos-peer-engine.lock").open("w") as lock:
        wait_until(lambda: _is_ours(lock), "the end of another session of these tests", OTHERS)
        if is_running():
            yield Engine()
            return
        need("docker", "dockerd", "docker-compose", "ip", "iptables", "nsenter", "mmdebstrap")
        with _own_engine():
            _import_base_image()
            yield Engine()


@contextlib.contextmanager
def _own_engine():
    name = f"{TAG}engine"
    place = Path(tempfile.mkdtemp(prefix="engine", dir=MEMORY if MEMORY.is_dir() else None))
    before = os.environ.get("DOCKER_HOST")
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, place)
        ip("netns", "add", name)
        stack.callback(ip, "netns", "del", name)
        ip("-n", name, "link", "set", "lo", "up")
        os.environ["DOCKER_HOST"] = f"unix://{place}/docker.sock"
        stack.callback(_restore, "DOCKER_HOST", before)
        stack.callback(_unmount_below, place)
        with (place / "log").open("wb") as log:
            engine = subprocess.Popen(
                [
                    *("nsenter", f"--net=/run/netns/{name}", "dockerd", "--host", os.environ["DOCKER_HOST"]),
                    *("--data-root", place / "data", "--exec-root", place / "exec", "--pidfile", place / "pid"),
                ],
                stdout=log,
                stderr=log,
            )
        stack.callback(_stop, engine)
        wait_until(lambda: engine.poll() is not None or is_running(), "an engine that answers", 60)
        assert engine.poll() is None, (place / "log").read_text(errors="replace")[-2000:]
        yield


def _restore(name, value):
    if value is None:
        del os.environ[name]
    else:
        os.environ[name] = value


def _stop(engine):
    engine.send_signal(signal.SIGTERM)
    try:
        engine.wait(30)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()


def _mounts_below(place):
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    return sorted((mount for mount in mounts if mount.startswith(f"{place}/")), reverse=True)


def _unmount_below(place):
    """What an engine leaves mounted when it ends."""
    for mount in _mounts_below(place):
        subprocess.run(["umount", "--lazy", mount], check=False)


def _remove(place):
    """Never through a mount: what is behind it belongs to others."""
    left = _mounts_below(place)
    assert not left, f"still mounted, so nothing is removed: {left}"
    shutil.rmtree(place)


def _import_base_image():
    """A stand-in for the base image, which cannot be pulled everywhere: the same system and Python."""
    began = time.monotonic()
    debootstrap = [
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=apt", "--dpkgopt=force-unsafe-io"),
        "--include=python3,python3-venv,ca-certificates",
        '--customize-hook=chroot "$1" python3 -m venv /usr/local',
        *("bookworm", "-"),
    ]
    environment = os.environ | ({"TMPDIR": str(MEMORY)} if MEMORY.is_dir() else {})
    changes = [f"ENV PATH={PATH}", "ENV LANG=C.UTF-8", 'CMD ["python3"]']
    with tempfile.TemporaryFile("w+") as words:
        with subprocess.Popen(debootstrap, stdout=subprocess.PIPE, stderr=words, env=environment) as maker:
            options = [part for change in changes for part in ("--change", change)]
            run("docker", "import", *options, "-", BASE, seconds=600, stdin=maker.stdout)
        words.seek(0)
        assert maker.returncode == 0, f"no base image after {time.monotonic() - began:.0f} s:\n{words.read()}"

"""Separate hosts on one machine: network namespaces on a switch that leads nowhere else."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from programs import run

TAG = f"tp{os.getpid() % 10000}"


def need(*commands, is_root=True):
    """Skip the test where these commands are missing, or root if that is needed; CI may not skip it."""
    lacking = [f"the command {name}" for name in commands if shutil.which(name) is None]
    if is_root and os.geteuid() != 0:
        lacking.insert(0, "root")
    if lacking:
        skip(f"needs {' and '.join(lacking)}")


def skip(reason):
    """Skip the test; CI may not."""
    if os.environ.get("CI"):
        pytest.fail(f"CI may not skip this, which {reason}")
    pytest.skip(reason)


def ip(*arguments):
    return run("ip", *arguments)


def own_etc(directory):
    """A copy of /etc to change, and what to put before a command that alone shall see it as /etc."""
    need("unshare", "mount")
    etc = Path(shutil.copytree("/etc", directory / "etc", symlinks=True))
    return etc, ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc)]


class Lan:
    """Hosts 10.77.0.1, 10.77.0.2, ... on one switch; number them from 0."""

    port = 17000

    def __init__(self, count):
        self.switch = f"{TAG}s"
        self.names = [f"{TAG}h{number}" for number in range(count)]

    def on(self, number):
        """What to put before a command to run it on a host."""
        return ["ip", "netns", "exec", self.names[number]]

    def address_of(self, number):
        return f"10.77.0.{number + 1}"

    def each_on_its_own_host(self, raw):
        """Change a topology so."""
        for peer in raw["peers"]:
            peer["address"] = f"tcp://{self.address_of(peer['id'])}:{self.port}"

    def cut(self, number):
        ip("-n", self.switch, "link", "set", f"v{number}", "down")

    def mend(self, number):
        ip("-n", self.switch, "link", "set", f"v{number}", "up")

    def move(self, number, address):
        """Take a host's address away, and give it another."""
        ip("-n", self.names[number], "addr", "del", f"{self.address_of(number)}/24", "dev", "eth0")
        ip("-n", self.names[number], "addr", "add", f"{address}/24", "dev", "eth0")

    @contextlib.contextmanager
    def own_hosts_files(self, addresses):
        """Give every host an /etc/hosts: `ip netns exec` lays /etc/netns/NAME/hosts over the real one."""
        with contextlib.ExitStack() as stack:
            stack.callback(_remove_if_empty, Path("/etc/netns"))
            for name in self.names:
                directory = Path("/etc/netns", name)
                directory.mkdir(parents=True)
                stack.callback(shutil.rmtree, directory)
            self.write_hosts_files(addresses)
            yield

    def write_hosts_files(self, addresses):
        """Write them in place, so that what runs already sees them change."""
        lines = "".join(f"{address} {name}\n" for name, address in addresses.items())
        for name in self.names:
            Path("/etc/netns", name, "hosts").write_text(f"127.0.0.1 localhost\n{lines}", encoding="ascii")


def _remove_if_empty(directory):
    with contextlib.suppress(OSError):  # others may have theirs there
        directory.rmdir()


@contextlib.contextmanager
def connected_hosts(count):
    """Some hosts on one switch, gone afterwards."""
    need("ip")
    lan = Lan(count)
    with contextlib.ExitStack() as stack:
        for name in (lan.switch, *lan.names):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
        ip("-n", lan.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", lan.switch, "link", "set", "br0", "up")
        for number, name in enumerate(lan.names):
            cable = f"v{number}"
            ip("-n", lan.switch, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", lan.switch, "link", "set", cable, "master", "br0", "up")
            ip("-n", name, "addr", "add", f"{lan.address_of(number)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield lan

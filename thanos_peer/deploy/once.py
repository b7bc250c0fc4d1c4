"""Services of a compose file that do something once: before all peers start, and when all are done."""

from typing import Any

from thanos_peer.deploy.containers import TOPOLOGY
from thanos_peer.deploy.enclosures import DIRECTORY
from thanos_peer.deploy.services import DONE, Choices, build_of, image_of, service_of, state_of
from thanos_peer.deploy.yaml import Text
from thanos_peer.topology import Topology

PREPARE = """\
if test -e {topology}; then
  {is_unchanged} && exit 0
  echo '{names} changed after the first start: bring the old back, or forget that run with' \\
    '`docker compose down --volumes` (results/ stays), and then `docker compose up` again.' >&2
  exit 3
fi
cp -r {originals} /tmp/
thanos-peer keys new --all /tmp/topology.toml
for id in {ids}; do
  chown {uid}:{gid} /states/$$id
  install -o {uid} -g {gid} -m 600 /tmp/topology.keys/$$id.secret /states/$$id/key
done
mkdir -p /network/original
cp -r {originals} /network/original/
{copy_files}chmod -R a+rX /network
install -m 644 /tmp/topology.toml {topology}.new
mv {topology}.new {topology}
"""
COLLECT = """\
mkdir -p /tmp/check
cp -r {originals} /tmp/check/
chmod -R a+rX /tmp/check
setpriv --reuid={uid} --regid={gid} --clear-groups thanos-peer verify /tmp/check/topology.toml --results /results
differ() {{ diff -r "$$1" "$$2" >/dev/null; test $$? -eq 1; }}
if test -e /project/results/peers && differ /results/peers /project/results/peers; then
  kept=results.$$(date -u +%Y%m%d-%H%M%S)
  mv /project/results /project/$$kept
  echo "results/ was of another run: it is kept as $$kept"
fi
mkdir -p /project/results
cp -r /results/. /project/results/
chown -R --reference=/project /project/results
"""


def _once(choices: Choices, script: str) -> dict[str, Any]:
    """A service that does something once, as the one user who may give files to others."""
    return {
        **image_of(choices),
        "user": "0:0",
        "network_mode": "none",
        "healthcheck": {"disable": True},
        "entrypoint": ["/bin/sh", "-ec"],
        "command": [Text(script)],
    }


def _originals(choices: Choices) -> list[str]:
    """What there is of the topology in the directory of the compose file."""
    return ["topology.toml"] + [DIRECTORY] * bool(choices.enclosures.files)


def _filled_in(script: str, choices: Choices, **more: str) -> str:
    uid, gid = choices.user.split(":")
    originals = " ".join(f"/project/{name}" for name in _originals(choices))
    return script.format(originals=originals, uid=uid, gid=gid, **more)


def prepare_service(topology: Topology, choices: Choices) -> dict[str, Any]:
    """Before all start for the first time: makes keys, in memory alone, and gives each peer its own."""
    names = _originals(choices)
    same = "diff -r --exclude=__pycache__ /project/{0} /network/original/{0} >/dev/null"
    script = _filled_in(
        PREPARE,
        choices,
        topology=TOPOLOGY,
        is_unchanged=" && ".join(same.format(name) for name in names),
        names=" or ".join(names),
        copy_files=f"cp -r /project/{DIRECTORY} /network/\n" if choices.enclosures.files else "",
        ids=" ".join(map(str, range(topology.d))),
    )
    states = [f"{state_of(i)}:/states/{i}" for i in range(topology.d)]
    return (
        build_of(topology, choices)
        | _once(choices, script)
        | {
            "read_only": True,
            "tmpfs": ["/tmp"],  # noqa: S108 - the container's own
            "volumes": [".:/project:ro", "network:/network", *states],
        }
    )


def outcome_service(topology: Topology, choices: Choices) -> dict[str, Any]:
    """When all are done: sums up and compares with one process, not as root; then hands the results over."""
    allowed = choices.enclosures.environment(f"/tmp/check/{DIRECTORY}")  # noqa: S108 - the container's own
    return _once(choices, _filled_in(COLLECT, choices)) | {
        **({"environment": allowed} if allowed else {}),
        "depends_on": {service_of(i): DONE for i in range(topology.d)},
        "volumes": [".:/project", "results:/results:ro"],
    }

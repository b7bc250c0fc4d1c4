"""A run over real peers, each a process of this machine: the curve comes from what they record."""

import shutil
import time
from pathlib import Path

from thanos_peer.compare.records import Record
from thanos_peer.compare.runs import OnRound, Trace, finished
from thanos_peer.compare.trials import Trial
from thanos_peer.launch.cluster import Cluster, prepare_peers
from thanos_peer.launch.ports import free_ports
from thanos_peer.problem import Instance, build
from thanos_peer.storage.outcome import Outcome, load_outcome

# Seconds between two looks at what the peers have recorded.
TRACE_PAUSE = 0.02


def run_peers(trial: Trial, judge: Instance, out: Path, on_round: OnRound) -> Record:
    """All peers to their end; the seconds count from their start, until their rounds are seen.

    Args:
        trial: What runs.
        judge: Whose objective is noted.
        out: A directory for the time of the run.
        on_round: Hears of the rounds of the main phase.

    Raises:
        PeerFailedError: A peer has ended with an error.
    """
    # A comparison that was killed may have left it.
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    try:
        return run_peers_in(out, trial, judge, on_round)[0]
    finally:
        shutil.rmtree(out)


def run_peers_in(out: Path, trial: Trial, judge: Instance, on_round: OnRound) -> tuple[Record, Outcome]:
    """The same in a directory that is there and stays, and what lies in it at the end."""
    instance, trace = build(trial.topology), Trace(judge)
    topology, secrets = prepare_peers(trial.topology, out / "topology.toml", free_ports(trial.topology.d))
    began = time.monotonic()
    with Cluster(topology, out, secrets, keep_every=1) as cluster:
        is_running = True
        while is_running:
            time.sleep(TRACE_PAUSE)
            # Looked at first, so that the last snapshots are read after all peers have ended.
            is_running = cluster.is_running
            for snapshot in cluster.snapshots():
                trace.note(snapshot.k, snapshot.X.mean(axis=0), time.monotonic() - began)
                on_round(snapshot.k)
            cluster.check()
    outcome = load_outcome(out, topology)
    return finished(outcome, instance, trace, time.monotonic() - began), outcome

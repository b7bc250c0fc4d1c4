"""THANOS over mpi4py, one rank per agent: the paper's own choice, to compare with.

mpirun -np D python benchmarks/mpi_thanos.py TOPOLOGY ROUNDS

The step is the one of thanos_peer; X, D and the step size travel as one buffer with Isend and Irecv. Rank 0 prints
seconds and CPU seconds of all ranks for the rounds, start-up left out, and a digest of all X.
"""

import hashlib
import json
import sys
import time

import numpy as np
from mpi4py import MPI

from thanos_peer.block import Block, StopWord
from thanos_peer.phases import Found
from thanos_peer.problem import share_of
from thanos_peer.topology import load


def main() -> None:
    """Run the rounds of one rank."""
    topology, rounds = load(sys.argv[1]), int(sys.argv[2])
    comm = MPI.COMM_WORLD
    me = comm.Get_rank()
    phase = share_of(topology, me).plan().phases[0]
    phase.enter(Found(), 0)
    state = phase.start()
    neighbors = topology.graph.neighbors[me]
    n, p = state.X.shape
    size = n * p
    out, stop = np.empty(2 * size + 1), StopWord()
    boxes = {j: np.empty(2 * size + 1) for j in neighbors}
    comm.Barrier()
    began, cpu = time.perf_counter(), time.process_time()
    for k in range(rounds):
        out[:size], out[size:-1], out[-1] = state.X.ravel(), state.D.ravel(), state.eta
        requests = [comm.Irecv(boxes[j], source=j, tag=k % 2) for j in neighbors]
        requests += [comm.Isend(out, dest=j, tag=k % 2) for j in neighbors]
        MPI.Request.Waitall(requests)
        heard = {j: Block(k, b[:-1].tobytes(), (n, p), b[-1], stop) for j, b in boxes.items()}
        heard[me] = Block.of(k, state.X, state.D, state.eta, stop)
        state, _ = phase.advance(k, state, [heard[j] for j in sorted(heard)])
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    total = comm.reduce(cpu)
    of_all = comm.gather(state.X)
    if of_all is not None:  # at rank 0
        bits = hashlib.sha256(b"".join(X.tobytes() for X in of_all)).hexdigest()
        print(json.dumps({"seconds": seconds, "cpu_seconds": total, "bits": bits}))


main()

"""Neighbors that a test speaks for, message by message, to a real peer."""

import contextlib
import time

import numpy as np
import zmq
from processes import wait_until
from strangers import pair_of

from thanos_peer.block import Block, StopWord
from thanos_peer.errors import RemoteProtocolError
from thanos_peer.preparation import outline
from thanos_peer.protocol.messages import Hello
from thanos_peer.protocol.wire import Codec


class Puppet:
    """A neighbor of a peer, at its address in the topology file; with its key, if the file has keys."""

    def __init__(self, topology, agent, peer, context):
        self._topology, self._agent = topology, agent
        self._inbox, self._outbox = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        if topology.peers[agent].public_key is not None:
            self._use_keys(pair_of(topology, agent), topology.peers[peer].public_key)
        self._inbox.bind(topology.peers[agent].address)
        self._outbox.connect(topology.peers[peer].address)
        self._life = int(time.time() * 1000)
        self.heard = []

    def _use_keys(self, pair, public_key):
        self._inbox.curve_server = True
        self._outbox.curve_serverkey = public_key.encode()
        for each in (self._inbox, self._outbox):
            each.curve_publickey, each.curve_secretkey = pair.public.encode(), pair.secret.encode()

    def close(self):
        self._inbox.close(linger=0)
        self._outbox.close(linger=0)

    def _codec(self, epoch):
        problem, exchange = self._topology.problem, self._topology.algorithm.exchange
        digest, forms = self._topology.digest, outline(self._topology).forms
        return Codec(digest, n=problem.n, p=problem.p, dtype=exchange, epoch=epoch, forms=forms)

    def listen(self):
        """All that it has been told so far: the epoch of the words, and the message."""
        while self._inbox.poll(0):
            frame = self._inbox.recv()
            for epoch in range(3):
                with contextlib.suppress(RemoteProtocolError):
                    message = self._codec(epoch).decode(frame)[1]
                    self.heard.append((getattr(message, "epoch", epoch), message))
                    break
        return self.heard

    def told(self, kind, *, epoch=0):
        return [message for at, message in self.listen() if isinstance(message, kind) and at == epoch]

    def wait_for(self, kind, count=1, *, epoch=0):
        """The latest of so many messages of a kind and an epoch."""
        return wait_until(
            lambda: self.told(kind, epoch=epoch)[count - 1 :], f"{count} of {kind} of epoch {epoch}"
        )[-1]

    def say_hello(self, k=0, *, epoch=0, **fields):
        problem, exchange = self._topology.problem, self._topology.algorithm.exchange
        defaults = {"is_asking": False, "answered": 0, "oldest": 0} | fields
        hello = Hello(
            k, self._topology.digest, problem.n, problem.p, exchange, "1", life=self._life, epoch=epoch, **defaults
        )
        self.say(hello, epoch=epoch)

    def say_block(self, k, *, epoch=0):
        X = np.full((self._topology.problem.n, self._topology.problem.p), 0.25)
        self.say(Block.of(k, X, X, 0.1, StopWord(), 0), epoch=epoch)

    def say(self, message, *, epoch=0):
        self._outbox.send(self._codec(epoch).encode(self._agent, message))


@contextlib.contextmanager
def puppets_around(topology, peer, only=None):
    """A puppet for each neighbor of a peer, or for some of them."""
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        made = {j: Puppet(topology, j, peer, context) for j in only or topology.graph.neighbors[peer]}
        for puppet in made.values():
            stack.callback(puppet.close)
        yield made

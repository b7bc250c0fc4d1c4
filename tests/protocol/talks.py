"""A session on a path of four peers, and what is said to it: by honest agents, or by a test."""

from dataclasses import replace

from networks import make_instance, raw_topology

from thanos_peer.agent import Agent
from thanos_peer.block import StopWord
from thanos_peer.peer.peer import terms_of
from thanos_peer.protocol.conversation import Options
from thanos_peer.protocol.hearing import Arrived
from thanos_peer.protocol.messages import Hello
from thanos_peer.protocol.outputs import Finished, Log, Send
from thanos_peer.protocol.session import Session

ME, DIAMETER = 1, 3  # of a path of four peers
CALM, RESTLESS = {"tolerance": 1e9}, {"tolerance": 1e-12}


class Talk:
    """A session of one peer on a path of four, and honest agents around it, unless a test says otherwise."""

    def __init__(self, rounds, *, me=ME, saves=False, is_done=False, **algorithm):
        raw = raw_topology("path", 4, max_rounds=60, **algorithm)
        self.instance = make_instance(raw)
        topology = self.instance.topology
        self.others = [Agent(topology, i, self.instance.plan(i), birth=f"of {i}") for i in range(4)]
        while is_done and not self.others[me].is_done:
            self.advance(self.others)
        self.agent, self.now = self.others[me], 1.0
        terms = self.terms = terms_of(topology)
        addresses = {j: topology.peers[j].address for j in range(4)}
        self.session = Session(self.agent, terms, addresses, Options(saves=saves), 0.0)
        self.session.start(0.0)
        self.error = None
        for j in self.agent.neighbors:
            self.tell(j, self.hello(j))
        for _ in range(rounds):
            self.go_on()

    def hello(self, j, **fields):
        terms, other = self.terms, self.others[j]
        said = Hello(other.k, terms.digest, terms.n, terms.p, terms.dtype, "1", is_asking=False, life=5)
        return replace(said, **{"answered": terms.life, "epoch": other.epoch, "birth": other.birth} | fields)

    def tell(self, j, message):
        """Have a neighbor say something; returns whether it was refused."""
        before = self.session.rejected
        epoch = self.session.talk.listening_epoch
        outputs = self.session.receive([Arrived((j, message), 100, self.now, j)], epoch, self.now)
        self.error = next((each.error for each in outputs if isinstance(each, Finished)), self.error)
        self.log = "".join(each.text for each in outputs if isinstance(each, Log))
        self.sent = [each.message for each in outputs if isinstance(each, Send)]
        return self.session.rejected > before

    def go_on(self, lies=None):
        """One round of all agents; `lies` changes what it hears of a neighbor."""
        blocks = [other.block for other in self.others]
        heard = [j for j in self.agent.neighbors if not self.tell(j, (lies or {}).get(j, blocks[j]))]
        self.advance([other for other in self.others if other is not self.agent], blocks)
        return heard

    def advance(self, agents, blocks=None):
        """One round of some agents by themselves."""
        blocks = blocks or [other.block for other in self.others]
        for agent in agents:
            for j in agent.neighbors:
                agent.receive(j, blocks[j])
            agent.advance()


def changed(block, **fields):
    stop = StopWord(fields.pop("streak", block.stop.streak), fields.pop("after", block.stop.after))
    return block._replace(stop=stop, **fields)

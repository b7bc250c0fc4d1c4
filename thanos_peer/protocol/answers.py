"""What neighbors that lack something are answered: a Hello, blocks, and whether this peer is done."""

from thanos_peer.block import AgentId
from thanos_peer.protocol.conversation import Conversation
from thanos_peer.protocol.messages import Hello
from thanos_peer.protocol.neighbor import EpochRecord

# Seconds between two answers to the same question, or to an earlier one.
ANSWERS_APART = 0.1


class Answers:
    """Answers the questions that neighbors have asked."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk

    def give(self) -> None:
        """Answer the latest question of each neighbor, now that all that arrived together is heard."""
        for neighbor in self._talk.neighbors.values():
            if (hello := neighbor.question) is not None:
                neighbor.question = None
                if self._is_due(neighbor.epoch, hello):
                    self._answer(neighbor.id, hello)

    def _is_due(self, known: EpochRecord, hello: Hello) -> bool:
        """Whether a question is new, or was asked again after a while.

        An answer costs more than a question: two blocks are looked up, encoded and sent. A sound neighbor asks for
        a later round each time, as fast as it is answered, or asks again after ASK_FIRST seconds.
        """
        epoch, k, when = known.answered or (-1, -1, -ANSWERS_APART)
        if self._talk.now - when < ANSWERS_APART and (hello.epoch, hello.k) <= (epoch, k):
            return False
        known.answered = hello.epoch, hello.k, self._talk.now
        return True

    def _answer(self, sender: AgentId, hello: Hello) -> None:
        """Answer a Hello in the epoch that this peer is in by now."""
        if hello.epoch < self._talk.agent.epoch:
            self._talk.send([sender], self._talk.handshake.hello_that_state_is_lost(sender, hello))
        elif hello.epoch > self._talk.agent.epoch:
            # The Hello may be a duplicate's, so the peer at the address is asked to say it.
            self._talk.say_hello([sender], is_asking=True)
        else:
            # This is rare, so the answer has all that the neighbor may lack: a Hello, blocks, and whether this
            # peer is done.
            self._send_again(sender, hello)

    def _send_again(self, sender: AgentId, hello: Hello) -> None:
        """Send again what a neighbor lacks: the block of its round, and the next one to save it a question."""
        agent, handshake = self._talk.agent, self._talk.handshake
        is_replaced = handshake.is_replaced(sender, hello)
        if hello.k < agent.exchange.oldest and not is_replaced:
            text = (
                f"peer {sender} is back in round {hello.k} without its state; what it needs from before round "
                f"{agent.exchange.oldest} is gone"
            )
            self._talk.log_seldom(f"lost {sender}", "warning", text)
        if is_replaced:
            self._talk.send([sender], handshake.hello_that_state_is_lost(sender, hello))
        else:
            self._talk.say_hello([sender], answered=hello.life)
        can_help = hello.k >= agent.exchange.oldest and not is_replaced
        for wanted in map(agent.exchange.said, (hello.k, hello.k + 1) if can_help else (agent.k,)):
            if wanted is not None and not (agent.is_done and wanted.k == agent.k):
                self._talk.send_block([sender], wanted)
        self._talk.send_done([sender])

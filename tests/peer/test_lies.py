"""A neighbor that lies about rounds and epochs: what others are told and what is saved stays true."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest
import zmq
from cli.commands import call
from fuzz.handshake import ME, NEIGHBORS, N, P, Said, Scene, codec_of, stage
from processes import PATIENCE, ended_afterwards, exact, own_name, said, start_peer, wait_until, write_topology
from puppets import puppets_around
from strangers import block_of, pair_of, speaking_to, status_of

from thanos_peer.agent import Agent
from thanos_peer.block import PAIR, WORD, Block, StopWord, bytes_each
from thanos_peer.preparation import outline
from thanos_peer.problem import build
from thanos_peer.protocol import saving
from thanos_peer.protocol.conduct import BUDGET
from thanos_peer.protocol.messages import Bye, Hello
from thanos_peer.simulate import AgentNetwork
from thanos_peer.storage.checkpoint import CheckpointStore
from thanos_peer.storage.peer_files import PeerFiles

LIAR, HONEST = NEIGHBORS
DIGEST = stage().instance.topology.digest
LOST = {"oldest": 10**6}  # nothing left from before that round


def in_round(k, *, life=5, **said):
    return Hello(k, DIGEST, N, P, "float64", "1", is_asking=False, life=life, **said)


def frame(sender, message, epoch=0):
    return Said(codec_of(DIGEST, epoch).encode(sender, message))


def blocks_of(k, epoch=0, senders=NEIGHBORS):
    X = np.eye(N, P)
    return [frame(j, Block.of(k, X, 0 * X, 0.1, StopWord(), 0), epoch) for j in senders]


def greetings(life, epoch=0):
    return [frame(j, in_round(0, answered=life, epoch=epoch)) for j in NEIGHBORS]


def hellos_sent():
    """What the peer has said of itself since the last time, whatever the epoch."""
    return [message for message in stage().sent if isinstance(message, Hello)]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The state of a peer in its first round, which it saves again at its end, and not before."""
    monkeypatch.setattr(saving, "INTERVAL", 1000.0)
    topology, plan = stage().instance.topology, stage().instance.plan(ME)
    with CheckpointStore(tmp_path, topology, ME, is_flushed=False) as store:
        store.save(Agent(topology, ME, plan).memory())
        yield store


def saved(store):
    return [path.name for path in store.files()]


@pytest.mark.parametrize("epoch", [0, 1], ids=["in this epoch", "in a later one"])
def test_a_run_under_way_is_not_lost_because_a_neighbor_says_so(store, epoch):
    def speak(agent, life):
        yield greetings(life)
        for k in range(3):
            yield blocks_of(k)
        stage().sent.clear()
        yield [frame(LIAR, in_round(10**6, answered=life, epoch=epoch, **LOST))]
        yield [frame(HONEST, replace(in_round(3), is_asking=True))]
        assert {(hello.epoch, hello.oldest) for hello in hellos_sent()} == {(0, 0)}
        yield blocks_of(3)
        assert (agent.k, agent.epoch) == (4, 0)

    assert not stage().play(speak, Scene(), store)  # one message was refused
    assert saved(store) == ["0-000000000001.ckpt", "0-000000000004.ckpt"]


def test_a_loss_that_may_be_true_is_neither_saved_nor_passed_on(store):
    def speak(agent, life):
        yield greetings(life)
        stage().sent.clear()
        lie, question = in_round(10**6, answered=life, epoch=1, **LOST), replace(in_round(0), is_asking=True)
        yield [frame(LIAR, lie), frame(HONEST, question)]
        assert {hello.epoch for hello in hellos_sent() if hello.is_asking} >= {1}  # of the one who says so
        assert {hello.epoch for hello in hellos_sent() if not hello.is_asking} == {0}
        later = in_round(0, answered=life, epoch=1)
        yield [frame(HONEST, later), frame(HONEST, later)]
        # An epoch that an earlier life may have begun is not begun again.
        assert agent.epoch == 0
        yield blocks_of(10**6, epoch=1)

    assert not stage().play(speak, Scene(), store)  # it ends: nothing was refused
    assert saved(store) == ["0-000000000000.ckpt"]


def test_a_peer_that_catches_up_may_still_find_that_its_state_is_lost():
    def speak(agent, life):
        # The neighbors were in round 4 when this peer began.
        yield [frame(j, in_round(4, answered=life)) for j in NEIGHBORS]
        yield blocks_of(0)
        yield blocks_of(1)
        # Its next life has lost the blocks before.
        yield [frame(HONEST, in_round(5, life=6, answered=life, oldest=4))]
        yield blocks_of(5, senders=[HONEST])
        assert (agent.k, agent.epoch) == (0, 1)

    assert stage().play(speak, Scene(restarts_tracking=True))


def test_a_late_answer_to_a_hello_of_the_epoch_before_is_no_loss_in_the_next():
    def speak(agent, life):
        yield greetings(life)
        yield [frame(LIAR, in_round(0, answered=life, epoch=1))]
        assert agent.epoch == 1
        yield greetings(life, epoch=1)
        # It has heard this peer in the new epoch, and then answers what this peer said before, in the one before.
        yield [frame(LIAR, in_round(0, answered=life, epoch=1, oldest=1))]
        yield blocks_of(0, epoch=1)
        assert (agent.k, agent.epoch) == (1, 1)

    assert stage().play(speak, Scene())


def test_a_neighbor_whose_second_block_has_overtaken_the_first_may_not_begin_the_epoch_again():
    def speak(_, life):
        yield greetings(life)
        yield [frame(LIAR, in_round(0, answered=life, epoch=1))]
        yield greetings(life, epoch=1)
        yield blocks_of(1, epoch=1, senders=[HONEST])
        stage().sent.clear()
        yield [frame(HONEST, replace(in_round(0, life=6), is_asking=True))]  # its next life, which knows nothing
        assert [hello.oldest for hello in hellos_sent() if hello.answered == 6] == [1]

    assert stage().play(speak, Scene())


def test_a_state_of_an_earlier_epoch_that_is_further_in_rounds_is_given_up_all_the_same(store):
    topology, plan = stage().instance.topology, stage().instance.plan(ME)
    agent = Agent(topology, ME, plan)
    for k in range(3):
        for j in NEIGHBORS:
            agent.receive(j, Block.of(k, np.eye(N, P), np.zeros((N, P)), 0.1, StopWord(), 0))
        agent.advance()
    store.save(agent.memory())

    def speak(agent, life):
        assert agent.k == 3
        yield [frame(j, in_round(1, answered=life, epoch=1, oldest=1)) for j in NEIGHBORS]
        asked = [hello for hello in hellos_sent() if hello.is_asking and hello.epoch == 1]
        # The peer asks from round 0: there is no round 3 in that epoch.
        assert {hello.k for hello in asked} == {0}
        yield blocks_of(1, epoch=1)
        assert (agent.k, agent.epoch) == (0, 2)

    assert stage().play(speak, Scene(restarts_tracking=True), store)


def test_losses_over_and_over_do_not_begin_epochs_over_and_over(store):
    def speak(agent, life):
        yield greetings(life)
        for _ in range(200):
            # The next epoch, as the liar has lost nothing of the one that it has begun.
            epoch = agent.epoch + 1
            yield [frame(LIAR, in_round(10**6, answered=life, epoch=epoch, **LOST))]
            yield blocks_of(10**6, epoch=epoch, senders=[LIAR])
            stage().sent.clear()
        assert 1 <= agent.epoch / 2 <= 1 + stage().talk.seconds / 2

    assert stage().play(speak, Scene(restarts_tracking=True), store)
    assert stage().talk.lines < 10 + stage().talk.seconds


def test_questions_over_and_over_are_answered_once_in_a_while_and_those_of_later_rounds_at_once():
    answers = []

    def speak(_, life):
        yield greetings(life)
        for k in range(3):
            yield blocks_of(k)
        question = replace(in_round(0), is_asking=True)
        for number in range(400):
            stage().sent.clear()
            yield [frame(LIAR, replace(question, k=number % 2, life=5 + number))] * 20
            answers.append(sum(not hello.is_asking for hello in hellos_sent()))
        for k in range(4):  # as who catches up does
            stage().sent.clear()
            yield [frame(HONEST, replace(question, k=k))] * 3
            assert [hello.k for hello in hellos_sent() if not hello.is_asking] == [3]
            blocks = [message.k for message in stage().sent if isinstance(message, Block)]
            assert blocks == list(range(k, min(k + 2, 4)))

    assert stage().play(speak, Scene())
    assert 1 <= sum(answers) <= 2 + 20 * stage().talk.seconds
    assert max(answers) == 1


def lies_instead_of(block, forms):
    """The same with numbers of every kind that is not due, and with none that are no numbers."""
    for kind, (rows, columns) in sorted(forms - {(block.kind, block.shape)}):
        numbers = bytes(bytes_each(kind) * rows * columns)
        yield block._replace(kind=kind, shape=(rows, columns), numbers=numbers, to=None)
    if block.kind == WORD:
        yield block._replace(numbers=np.full(block.shape, np.nan).tobytes(), to=None)


@pytest.mark.parametrize(("me", "due"), [(1, "int2112 of (1, 2)"), (2, "none of (0, 0)")], ids=["root", "leaf"])
def test_numbers_of_another_kind_than_is_due_are_refused_and_the_run_goes_on_with_the_right_ones(
    tmp_path, me, due
):
    topology = write_topology(tmp_path / "net.toml", "path", 3, change=exact("proximal"))
    out, network, told = tmp_path / "run", AgentNetwork(build(topology)), 0
    ahead = AgentNetwork(build(topology))
    ahead.advance()
    forms = outline(topology).forms | {(PAIR, (topology.problem.n, topology.problem.p))}
    with puppets_around(topology, me) as puppets:
        peer = start_peer(topology, me, out, "--leave-after", 0)
        with ended_afterwards(peer):
            for puppet in puppets.values():
                puppet.say_hello(answered=puppet.wait_for(Hello).life, is_asking=True)
            while not network.is_done:
                k = network.agents[me].k
                for j, puppet in puppets.items():
                    wait_until(lambda: any(block.k == k for block in puppet.told(Block)), f"round {k}")  # noqa: B023
                    block = network.agents[j].block.as_told_to(me)
                    lies = [*lies_instead_of(block, forms)] if k < 12 else []
                    if lies:  # also before its time
                        puppet.say(next(lies_instead_of(ahead.agents[j].block.as_told_to(me), forms)))
                    for message in (*lies, block):
                        puppet.say(message)
                    told += len(lies)
                network.advance()
                if not ahead.is_done:
                    ahead.advance()
            assert peer.wait(PATIENCE) == 0, said(out, me)
    files = PeerFiles(out, topology, me)
    with np.load(files.result, allow_pickle=False) as arrays:
        assert arrays["X"].tobytes() == network.X[me].tobytes()
    assert json.loads(files.facts.read_text(encoding="utf-8"))["rejected"] >= told > 70
    assert f"; phase size expects {due}" in said(out, me)


def test_a_word_that_no_honest_root_says_ends_the_peer_with_the_name_of_who_said_it(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 3, change=exact("gram"))
    me, root, out, network = 2, 1, tmp_path / "run", AgentNetwork(build(topology))
    with puppets_around(topology, me) as puppets:
        peer, puppet = start_peer(topology, me, out, "--leave-after", 0), puppets[root]
        with ended_afterwards(peer):
            puppet.say_hello(answered=puppet.wait_for(Hello).life, is_asking=True)
            while not network.is_done:
                k, block = network.agents[me].k, network.agents[root].block.as_told_to(me)
                wait_until(lambda: any(block.k == k for block in puppet.told(Block)), f"round {k}")  # noqa: B023
                if block.kind == WORD and network.agents[root].runner.phase.name == "gram":
                    word = np.frombuffer(block.numbers, dtype="<f8").copy()
                    word[2] = 0.0
                    block = block._replace(numbers=word.tobytes())
                puppet.say(block)
                network.advance()
            assert peer.wait(PATIENCE) == 5, said(out, me)
    assert "neighbor 1, round 3: its word in phase gram cannot be: ||A||_2^2 is 0, not from " in said(out, me)


def play(puppet, network, agent, peer, last):
    """Say an honest neighbor's blocks to a peer, again and again, until it is past some round or done."""
    while not network.is_done and network.k <= last:
        k, block = network.k, network.agents[agent].block.as_told_to(peer)

        def goes_on(k=k, block=block):
            puppet.say(block)
            return puppet.told(Bye) or any(each.k > k for each in puppet.told(Block))

        wait_until(goes_on, f"the peer is past round {k}")
        network.advance()


def flood_until(speaker, frame, is_enough, what):
    """Send a frame whenever there is room for it; returns how often that was."""
    sent = 0

    def has_flooded():
        nonlocal sent
        with contextlib.suppress(zmq.Again):
            for _ in range(2000):
                speaker.send(frame, zmq.NOBLOCK)
                sent += 1
        return is_enough()

    wait_until(has_flooded, what)
    return sent


def test_a_neighbor_with_too_much_refused_is_shut_out_for_growing_pauses_and_let_in_when_it_behaves(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 3, has_keys=True, name=own_name("budget"))
    liar, me, far, out, network = 0, 1, 2, tmp_path / "run", AgentNetwork(build(topology))
    lie, sent = block_of(topology, liar, 10**6), 0
    with puppets_around(topology, me, [liar]) as puppets:
        peers = [start_peer(topology, each, out, "--leave-after", 0) for each in (me, far)]
        with ended_afterwards(*peers):
            puppet = puppets[liar]
            puppet.say_hello(answered=puppet.wait_for(Hello).life, is_asking=True)
            play(puppet, network, liar, me, last=5)
            with speaking_to(topology, me, pair_of(topology, liar)) as (speaker, _):
                for pause in (1, 2):
                    closed = f"; its connection is closed for {pause} s"
                    sent += flood_until(speaker, lie, lambda what=closed: what in said(out, me), closed)
            (known,) = status_of(topology, me)["misbehaving"]
            assert (known["id"], known["pause"]) == (liar, 2.0)
            assert 2 * BUDGET < known["refused"] < 4 * BUDGET < sent  # most were not even decoded
            assert (
                f"refused {known['refused']} message(s) of peer 0, the latest from neighbor 0, round 1000000"
                in (call("status", topology.file, "--id", me).output)
            )
            named = f"it says that peer 0 sends what peer 1 refuses: {known['refused']} messages so far"
            wait_until(lambda: any(named in line for line in status_of(topology, far)["waiting"]), "all know", 30)
            play(puppet, network, liar, me, last=10**6)
            assert [peer.wait(PATIENCE) for peer in peers] == [0, 0], said(out, me)
    for each in (me, far):
        with np.load(PeerFiles(out, topology, each).result, allow_pickle=False) as arrays:
            assert arrays["X"].tobytes() == network.X[each].tobytes()


def test_without_keys_what_is_said_in_the_name_of_a_neighbor_is_counted_and_it_is_not_shut_out(tmp_path):
    topology = write_topology(tmp_path / "net.toml", "path", 2, name=own_name("in-its-name"))
    out, lie = tmp_path / "run", block_of(topology, 1, 10**6)
    peer = start_peer(topology, 0, out)
    with ended_afterwards(peer), puppets_around(topology, 0) as puppets:
        puppet = puppets[1]
        puppet.say_hello(answered=puppet.wait_for(Hello).life)
        with speaking_to(topology, 0) as (speaker, _):
            much = 3 * BUDGET
            flood_until(speaker, lie, lambda: status_of(topology, 0)["rejected"] > much, "much is refused")
        (known,) = status_of(topology, 0)["misbehaving"]
        assert (known["id"], known["pause"], known["seconds_closed"]) == (1, 0.0, 0.0)
        puppet.say_block(0)
        wait_until(lambda: status_of(topology, 0)["round"] == 1, "it is heard", 30)
    assert "its connection is closed" not in said(out, 0)

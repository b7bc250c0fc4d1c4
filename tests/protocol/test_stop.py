import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from topology.graphs import connected_graphs

from thanos_peer.block import StopWord
from thanos_peer.protocol.stop import next_word
from thanos_peer.topology.graph import Graph

ROUNDS = 40


def talk(graph, is_calm, rounds=ROUNDS):
    """The words of all agents in rounds 0, 1, ...; is_calm(i, k) is what agent i thinks of itself in round k."""
    words = [[StopWord()] * graph.d]
    for k in range(1, rounds + 1):
        words.append(
            [
                next_word(
                    [words[-1][j] for j in (i, *graph.neighbors[i])],
                    is_calm=is_calm(i, k),
                    k=k,
                    diameter=graph.diameter,
                )
                for i in range(graph.d)
            ]
        )
    return words


def first_announcement(words):
    return next((k for k, said in enumerate(words) if any(word.after is not None for word in said)), None)


@st.composite
def restless_runs(draw):
    """A graph, and who is restless when; all others are calm."""
    d, edges = draw(connected_graphs(7))
    moments = st.tuples(st.integers(0, d - 1), st.integers(1, 20))
    return Graph(d, tuple(edges)), draw(st.sets(moments, max_size=25))


@given(restless_runs())
def test_all_agents_learn_of_the_same_last_round_before_it_is_due(run):
    graph, restless = run
    words = talk(graph, lambda i, k: (i, k) not in restless)
    announced_in = first_announcement(words)
    assert announced_in is not None
    last = announced_in + graph.diameter + 1
    assert {word.after for word in words[last - 1]} == {last}
    stops = [next(k for k, said in enumerate(words) if said[i].after in range(k + 1)) for i in range(graph.d)]
    assert stops == [last] * graph.d


@given(restless_runs())
def test_a_stop_is_announced_only_if_all_agents_were_calm_in_one_round(run):
    graph, restless = run
    words = talk(graph, lambda i, k: (i, k) not in restless)
    common = first_announcement(words) - graph.diameter
    assert common >= 1
    assert not any((i, common) in restless for i in range(graph.d))


@given(restless_runs())
def test_a_streak_tells_who_was_calm_how_long_ago_within_how_many_edges(run):
    graph, restless = run
    for k, said in enumerate(talk(graph, lambda i, k: (i, k) not in restless)):
        for i, word in enumerate(said):
            around = {i}
            for t in range(word.streak):
                assert not any((j, k - t) in restless for j in around)
                around |= {neighbor for j in around for neighbor in graph.neighbors[j]}


@given(connected_graphs(7), st.data())
def test_once_all_are_calm_for_good_the_stop_comes_within_a_diameter(drawn, data):
    d, edges = drawn
    graph = Graph(d, tuple(edges))
    calm_from = [data.draw(st.integers(1, 15)) for _ in range(d)]
    words = talk(graph, lambda i, k: k >= calm_from[i])
    assert max(calm_from) <= first_announcement(words) <= max(calm_from) + graph.diameter


@given(connected_graphs(7), st.data())
def test_no_agent_announces_a_stop_while_one_is_never_calm(drawn, data):
    d, edges = drawn
    restless = data.draw(st.integers(0, d - 1))
    words = talk(Graph(d, tuple(edges)), lambda i, _: i != restless)
    assert first_announcement(words) is None


@given(connected_graphs(7), st.data())
def test_agents_that_are_calm_in_turns_but_never_together_do_not_stop(drawn, data):
    d, edges = drawn
    assume(d > 1)
    restless = [data.draw(st.integers(0, d - 1)) for _ in range(ROUNDS + 1)]
    words = talk(Graph(d, tuple(edges)), lambda i, k: i != restless[k])
    assert first_announcement(words) is None


def test_later_unrest_does_not_take_back_what_was_announced():
    graph = Graph(3, ((0, 1), (1, 2)))
    words = talk(graph, lambda _, k: k <= 3)
    assert first_announcement(words) == 3
    assert {word.after for word in words[5]} == {6}
    assert {word.streak for word in words[5]} == {0}


def test_an_agent_alone_stops_the_round_after_it_is_calm():
    words = talk(Graph(1, ()), lambda _, k: k >= 4)
    assert [word.after for (word,) in words[:6]] == [None, None, None, None, 5, 5]


@pytest.mark.parametrize(
    ("heard", "is_calm", "said"),
    [
        ([StopWord(), StopWord(3)], True, StopWord(1)),
        ([StopWord(2), StopWord(3)], True, StopWord(3)),
        ([StopWord(2), StopWord(3)], False, StopWord(0)),
        ([StopWord(3), StopWord(3)], True, StopWord(4, after=14)),
        ([StopWord(4, 12), StopWord(4)], True, StopWord(4, after=12)),
        ([StopWord(0, 13), StopWord(1, 12)], False, StopWord(0, after=12)),
    ],
)
def test_a_word_follows_from_those_heard_a_round_ago(heard, is_calm, said):
    assert next_word(heard, is_calm=is_calm, k=10, diameter=3) == said


@given(restless_runs())
def test_an_honest_announcement_comes_in_time_for_all_that_one_agent_alone_can_tell(drawn):
    graph, restless = drawn
    words = talk(graph, lambda i, k: (i, k) not in restless)
    for k, said in enumerate(words[:-1]):
        for i in range(graph.d):
            for j in graph.neighbors[i]:
                after, known = said[j].after, said[i].after
                behind = graph.farthest_behind(i, j)
                if behind and after is not None and (known is None or after < known):
                    assert after - k >= behind + 2

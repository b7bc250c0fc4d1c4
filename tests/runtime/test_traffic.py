"""What has gone over each edge of a peer."""

from hypothesis import given
from hypothesis import strategies as st

from thanos_peer.runtime.traffic import EdgeCounters, Traffic

NEIGHBORS = (2, 5, 9)
SOME = st.lists(st.sampled_from(NEIGHBORS), unique=True)


@given(st.lists(st.tuples(SOME, st.integers(1, 1000), SOME)))
def test_each_edge_has_what_was_sent_to_its_neighbor_whether_to_it_alone_or_to_all(sent):
    traffic = Traffic(NEIGHBORS)
    expected = {j: EdgeCounters() for j in NEIGHBORS}
    for neighbors, size, full in sent:
        dropped = [j for j in full if j in neighbors]
        traffic.note_sent(neighbors, size, dropped)
        for j in neighbors:
            edge = expected[j]
            if j in dropped:
                edge.dropped += 1
            else:
                edge.messages_sent, edge.bytes_sent = edge.messages_sent + 1, edge.bytes_sent + size
    assert {j: traffic.counters(j) for j in NEIGHBORS} == expected


def test_what_has_been_heard_is_counted_by_neighbor_and_a_stranger_has_no_counters():
    traffic = Traffic(NEIGHBORS)
    traffic.heard_from(5).messages_received += 1
    assert traffic.facts()["5"]["messages_received"] == 1
    assert traffic.facts()["2"]["messages_received"] == 0
    assert traffic.heard_from(3) is None
    assert (3 in traffic, 9 in traffic, len(traffic)) == (False, True, 3)

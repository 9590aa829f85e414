"""Long queues, before and behind the capture point."""

from __future__ import annotations

from daskwire.analysis.problems.finding import Finding, notes_if_cheap
from daskwire.analysis.problems.kinds import KINDS

from tests.unit.daskwire.analysis.problems.cluster import WORKERS, Cluster, Read, findings, only
from tests.unit.daskwire.build import ACK, Talk, g3, stamp


def queued(talk: Talk, number: int, delay_ns: int) -> None:
    """Send data segments; each is acknowledged after a delay, by its timestamp."""
    begin_ns, packets = talk.time_ns, []
    for step in range(number):
        talk.time_ns = begin_ns + step * 5_000_000
        talk.add(1, ACK, bytes(1448) * 30, options=stamp(1000 + step, 1))
        talk.sent[1] += 1448 * 30
        talk.time_ns = begin_ns + step * 5_000_000 + (delay_ns if step > 3 else 100_000)
        talk.add(0, ACK, options=stamp(5, 1000 + step))
    talk.packets += packets


def send_small_messages(cluster: Cluster, source: str, destination: str) -> None:
    """Send 20 messages within a second, which a queue between the two workers delays."""
    server = (WORKERS[destination], 3333)
    talk = cluster.open(WORKERS[source], 45000, server, time_ns=cluster.at(2))
    for number in range(20):
        talk.time_ns = cluster.at(2.1 + number / 20)
        talk.say(0, g3([{"op": "x"}]))


def test_bufferbloat_is_a_long_rtt_under_load(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    queued(talk, 400, 300_000_000)
    send_small_messages(cluster, "w1", "w2")
    row = only(read(cluster.packets), "bufferbloat")
    assert (row["source"], row["destination"]) == ("w1", "w2")
    assert "the RTT is 300 ms" in row["what"] and "behind the capture point" in row["what"]


def echoed(talk: Talk, number: int, step_ns: int, delay_ns: int) -> None:
    """Send data segments that echo the timestamp of the ACK that passed ``delay_ns`` before them."""
    begin_ns = talk.time_ns
    behind = delay_ns // step_ns
    for step in range(number):
        talk.time_ns = begin_ns + step * step_ns
        echo = max(step - behind, 3) + 1 if step > 3 else step
        talk.add(1, ACK, bytes(1448) * 30, options=stamp(1000 + step, echo))
        talk.sent[1] += 1448 * 30
        talk.add(0, ACK, options=stamp(step + 1, 1000 + step))


def test_a_queue_before_the_capture_point_delays_the_sender_s_echo(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    echoed(cluster.fetch("w1", "w2", 2.0), 400, 5_000_000, 300_000_000)
    send_small_messages(cluster, "w1", "w2")
    row = only(read(cluster.packets), "bufferbloat")
    assert (row["source"], row["destination"]) == ("w1", "w2")
    assert "the RTT is 300 ms" in row["what"] and "before the capture point" in row["what"]


def test_a_sender_that_pauses_has_no_queue(read: Read) -> None:
    """Each of its bursts echoes the ACK of the burst before it."""
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    for burst in range(20):
        for segment in range(3):
            talk.add(1, ACK, bytes(1448) * 30, options=stamp(1000 + 10 * burst + segment, burst + 1))
            talk.sent[1] += 1448 * 30
        talk.add(0, ACK, options=stamp(burst + 2, 1002 + 10 * burst))
        talk.time_ns += 300_000_000
    assert findings(read(cluster.packets)) == []


def test_queues_of_several_pairs_cost_their_sum() -> None:
    def finding(cost_s: float) -> Finding:
        return Finding(KINDS["bufferbloat"], "", cost_s=cost_s)

    assert [found.is_note for found in notes_if_cheap([finding(0.3), finding(0.3)])] == [False, False]
    assert [found.is_note for found in notes_if_cheap([finding(0.3)])] == [True]

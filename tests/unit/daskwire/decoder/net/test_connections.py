"""Segments are assigned to connections."""

from __future__ import annotations

from collections.abc import Callable

from daskwire import Capture

from tests.unit.daskwire.build import ACK, RST, SYN, Talk

Read = Callable[..., Capture]


def test_repeated_syn_with_another_answer_opens_a_new_connection(read: Read) -> None:
    """A firewall reset the first one. Its sequence numbers have nothing to do with those of the second."""
    first = Talk()
    first.add(0, SYN, seq=first.isn[0])
    first.add(1, SYN | ACK, seq=first.isn[1])
    first.add(0, RST, seq=first.isn[0] + 1)
    again = Talk(isn=(first.isn[0], 90_000_000), time_ns=first.time_ns + 10**9).open().say(1, bytes(5000))
    capture = read(first.packets + again.packets)
    flows = capture.table("flows")
    assert len(capture.connections) == 2
    assert sum(flows["stream_bytes"]) == 5000 and sum(flows["lost_bytes"]) == 0


def test_repeated_syn_with_the_same_answer_does_not(read: Read) -> None:
    talk = Talk()
    for _ in range(2):
        talk.add(0, SYN, seq=talk.isn[0])
        talk.add(1, SYN | ACK, seq=talk.isn[1])
        talk.time_ns += 10**9
    talk.add(0, ACK)
    assert len(read(talk.say(1, b"data").packets).connections) == 1

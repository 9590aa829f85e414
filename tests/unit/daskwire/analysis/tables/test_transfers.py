"""Transfers have the figures of their connection."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Read
from tests.unit.daskwire.build import HELLO, Talk, g3


def test_transfers_have_throughput_and_rtt(read: Read) -> None:
    talk = Talk(step_ns=1_000_000).open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(0, g3({"op": "get_data", "keys": ["x"], "who": "tcp://10.0.0.2:3333"}))
    reply = g3({"status": "OK", "data": {"x": {"__Serialized__": 1}}}, bytes(10 * 1448))
    talk.say(1, reply)
    table = read(talk.packets).table("transfers")
    packets = -(-len(reply) // 1448)
    assert table["wire_ms"] == [pytest.approx(packets - 1)]
    assert table["mb_s"] == [pytest.approx(len(reply) / 1e6 / ((packets - 1) / 1e3), abs=1e-3)]
    assert table["rtt_min_ms"] == [pytest.approx(1.0)]

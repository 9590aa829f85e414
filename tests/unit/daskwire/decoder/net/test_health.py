"""TCP analysis: D-SACK, windows, resets, connection attempts, round trips."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from daskwire import Capture

from tests.unit.daskwire.build import ACK, FIN, PSH, RST, SYN, Talk, g3, small_talk, stamp

Read = Callable[..., Capture]


def flow(capture: Capture, source: str) -> dict[str, object]:
    table = capture.table("flows")
    row = table["source"].index(source)
    return {name: column[row] for name, column in table.items()}


def test_duplicate_sack_is_recognised(read: Read) -> None:
    """Figure 5 of the study: the SACK block is below the ACK, so the segment arrived twice."""
    talk = small_talk(1)
    block = b"\x01\x01\x05\x0a" + struct.pack(">II", talk.isn[0] + 1, talk.isn[0] + 67)
    talk.add(1, ACK, options=stamp(1, 1) + block)
    assert flow(read(talk.packets), "worker-1")["spurious"] == 1


def test_sack_of_later_bytes_is_not_a_duplicate(read: Read) -> None:
    talk = small_talk(1)
    above = talk.isn[0] + 1 + talk.sent[0] + 5000
    talk.add(1, ACK, options=stamp(1, 1) + b"\x01\x01\x05\x0a" + struct.pack(">II", above, above + 1448))
    assert flow(read(talk.packets), "worker-1")["spurious"] == 0


def test_duplicate_sack_within_the_second_block(read: Read) -> None:
    talk = small_talk(1)
    top = talk.isn[0] + 1 + talk.sent[0]
    blocks = struct.pack(">4I", top + 2000, top + 3000, top + 1000, top + 5000)
    talk.add(1, ACK, options=b"\x01\x01\x05\x12" + blocks)
    assert flow(read(talk.packets), "worker-1")["spurious"] == 1


def test_of_two_retransmissions_the_receiver_had_one_already(read: Read) -> None:
    """The first segment was lost, and both of its retransmissions arrived."""
    talk = small_talk(1)
    data, begin = g3({"op": "x"}), talk.isn[0] + 1 + talk.sent[0]
    for _ in range(3):
        talk.add(0, ACK | PSH, data, seq=begin)
    talk.sent[0] += len(data)
    talk.add(1, ACK, options=b"\x01\x01\x05\x0a" + struct.pack(">II", begin, begin + len(data)))
    capture = read(talk.packets)
    row = flow(capture, "worker-1")
    assert (row["retransmitted"], row["spurious"]) == (2, 1)
    assert capture.needless.tolist() == [False, True]


def test_retransmissions_and_late_segments(read: Read) -> None:
    talk = small_talk(1)
    data, begin = g3({"op": "x", "pad": "y" * 4000}), talk.isn[0] + 1 + talk.sent[0]
    parts = [(begin + at, data[at : at + 1000]) for at in range(0, len(data), 1000)]
    for index in (0, 2, 1, 3, 3, 4):  # one late, one sent twice
        talk.add(0, ACK | PSH, parts[index][1], seq=parts[index][0])
    row = flow(read(talk.packets), "worker-1")
    assert (row["out_of_order"], row["retransmitted"], row["retransmitted_bytes"]) == (1, 1, 1000)
    assert row["missing_bytes"] == 0


def test_windows_resets_and_refused_attempts(read: Read) -> None:
    talk = small_talk(1)
    talk.add(1, ACK, window=0)
    talk.add(1, RST)
    for port in (41000, 41001):
        early = Talk(client=("10.0.0.2", port), time_ns=talk.time_ns)
        early.add(0, SYN, seq=1)
        early.add(1, RST | ACK, seq=0)
        talk.packets += early.packets
    capture = read(talk.packets)
    row = flow(capture, "scheduler")
    assert (row["zero_windows"], row["resets"]) == (1, 1)
    table = capture.table("flows")
    assert sum(table["resets"]) == 3 and table["handshake_ms"].count(None) == 4


def test_round_trips_by_sequence_numbers(read: Read) -> None:
    talk = small_talk(3, step_ns=250_000)
    row = flow(read(talk.packets), "worker-1")
    assert row["rtt_min_ms"] == pytest.approx(0.25) and row["handshake_ms"] == pytest.approx(0.5)
    assert row["rtt_samples"] == 4


def test_retransmitted_segment_gives_no_round_trip(read: Read) -> None:
    talk = Talk(step_ns=1_000_000).open()
    data = g3({"op": "x"})
    talk.add(0, ACK | PSH, data)
    talk.add(0, ACK | PSH, data)
    talk.sent[0] += len(data)
    talk.add(1, ACK)
    assert read(talk.packets).table("flows")["rtt_samples"] == [0, 0]


def test_round_trips_by_timestamps(read: Read) -> None:
    talk = Talk(step_ns=2_000_000).open()
    for number in range(30):
        talk.add(0, ACK | PSH, g3({"op": "x"}), options=stamp(100 + number, 1))
        talk.sent[0] += len(g3({"op": "x"}))
        talk.add(1, ACK, options=stamp(7, 100 + number))
    table = read(talk.packets).table("flows")
    row = table["rtt_samples"].index(30)
    assert table["rtt_min_ms"][row] == table["rtt_p5_ms"][row] == pytest.approx(2.0)


def test_offloads_are_detected(read: Read) -> None:
    small, large = small_talk(2), small_talk(2).say(0, g3({"op": "x", "pad": "y" * 9000}), mtu=65_000)
    assert set(read(small.packets).table("packets")["offload"]) == {"off"}
    assert read(large.packets).table("packets")["largest_bytes"][-1] > 9000
    assert "on" in read(large.packets).table("packets")["offload"]


def test_retransmitted_fin_may_be_spurious(read: Read) -> None:
    talk = small_talk(2)
    end = talk.isn[0] + 1 + talk.sent[0]
    talk.add(0, FIN | ACK, seq=end)
    talk.add(0, FIN | ACK, seq=end)
    talk.sent[0] += 1
    talk.add(1, ACK, options=b"\x01\x01\x05\x0a" + struct.pack(">II", end, end + 1))
    row = flow(read(talk.packets), "worker-1")
    assert (row["retransmitted"], row["retransmitted_bytes"], row["spurious"]) == (1, 0, 1)


def test_fin_retransmitted_without_its_payload_counts(read: Read) -> None:
    talk = small_talk(2)
    end = talk.isn[0] + 1 + talk.sent[0]
    talk.add(0, FIN | PSH | ACK, b"x" * 100, seq=end)
    talk.add(0, FIN | ACK, seq=end + 100)
    assert flow(read(talk.packets), "worker-1")["retransmitted"] == 1


def test_repeated_syn_ack_is_a_retransmission(read: Read) -> None:
    talk = Talk()
    talk.add(0, SYN, seq=talk.isn[0])
    for _ in range(3):
        talk.add(1, SYN | ACK, seq=talk.isn[1])
    talk.add(0, ACK)
    capture = read(talk.say(0, g3({"op": "x"})).packets)
    assert sorted(capture.table("flows")["retransmitted"]) == [0, 2]


def test_copies_are_counted_once(read: Read) -> None:
    """D-SACKs, zero windows, resets and SYNs in packets that a flooding bridge repeats."""
    talk = small_talk(1)
    end = talk.isn[0] + 1 + talk.sent[0]
    talk.add(1, ACK, window=0, options=b"\x01\x01\x05\x0a" + struct.pack(">II", end - 60, end))
    talk.add(0, FIN | ACK, seq=end)
    talk.add(1, RST)
    twice = [(time + delay, data, size) for time, data, size in talk.packets for delay in (0, 1000)]
    once, copies = read(talk.packets).table("flows"), read(twice).table("flows")
    for name in ("spurious", "zero_windows", "resets", "attempts", "retransmitted", "handshake_ms"):
        assert copies[name] == once[name], name
    assert sum(once["spurious"]) == sum(once["zero_windows"]) == sum(once["resets"]) == 1

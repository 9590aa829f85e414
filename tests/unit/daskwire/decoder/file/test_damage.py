"""Captures with lost, duplicated, reordered or truncated packets: fewer messages, never false ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from daskwire import Capture
from daskwire.analysis.live.follower import Follower
from daskwire.decoder.dask.content import MessageKind

from tests.unit.daskwire.build import GOLDEN, Packet, golden_bytes, packets_of, pcap
from tests.unit.daskwire.conftest import golden_capture

Read = Callable[..., Capture]
PLAIN = [name for name in GOLDEN if not name.startswith(("tls", "ws"))]
MessageMap = dict[tuple[str, int, str, int, int], tuple[int, str]]


def messages(capture: Capture) -> MessageMap:
    """Map endpoints and sequence number of each message to its size and ops."""
    actual = capture.messages
    ops: dict[int, str] = {}
    for message, op in zip(actual.op_message.tolist(), actual.op_name, strict=True):
        ops[message] = f"{ops.get(message, '')} {op}"
    last = {}
    for index, flow in enumerate(capture.pieces.flow.tolist()):
        at = int(capture.pieces.begin[index])
        row = int(capture.pieces.row[at])
        last[flow] = int(capture.segments.seq[row]) - int(capture.pieces.start[at])
    return {
        (*capture.connections.endpoints(flow), (last[flow] + position) & 0xFFFFFFFF): (
            size,
            ops.get(i, "") if kind != MessageKind.CUT else "?",
        )
        for i, (flow, position, size, kind) in enumerate(
            zip(
                actual.flow.tolist(),
                actual.position.tolist(),
                actual.size.tolist(),
                actual.kind.tolist(),
                strict=True,
            )
        )
    }


def lost(packets: list[Packet], chance: random.Random, share: float) -> list[Packet]:
    return [p for p in packets if chance.random() >= share]


def doubled(packets: list[Packet], chance: random.Random, share: float) -> list[Packet]:
    return [p for q in packets for p in ([q, (q[0] + 500, *q[1:])] if chance.random() < share else [q])]


def reordered(packets: list[Packet], chance: random.Random, share: float) -> list[Packet]:
    result = list(packets)
    for i in range(len(result) - 3):
        if chance.random() < share:
            j = i + chance.randrange(1, 3)
            (ta, *a), (tb, *b) = result[i], result[j]
            result[i], result[j] = (ta, *b), (tb, *a)  # type: ignore[assignment]
    return result


def shortened(packets: list[Packet], chance: random.Random, share: float) -> list[Packet]:
    return [
        (t, d[: chance.randrange(54, len(d) + 1)] if chance.random() < share and len(d) > 54 else d, n)
        for t, d, n in packets
    ]


def halved(packets: list[Packet], chance: random.Random, share: float) -> list[Packet]:
    return packets[int(len(packets) * share) :]


CASES = [
    (lost, 0.01), (lost, 0.05), (lost, 0.3), (doubled, 0.3), (reordered, 0.2), (shortened, 0.1),
    (halved, 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("injure", "share"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
@pytest.mark.parametrize("name", ["g1-2.8.0", "g2-2022.1.0", "g3-2026.8.0"])
def test_no_false_messages(read: Read, name: str, injure: Callable[..., list[Packet]], share: float) -> None:
    truth = messages(golden_capture(name))
    packets = injure(packets_of(golden_bytes(name)), random.Random(f"{name}{injure.__name__}{share}"), share)
    actual = messages(read(pcap(packets)))
    false = {k: v for k, v in actual.items() if k not in truth or (v != truth[k] and v != (truth[k][0], "?"))}
    assert not false
    if injure in (doubled, reordered):
        assert actual == truth
    elif share < 0.5 or injure is halved:
        assert len(actual) > len(truth) * (1 - share) * 0.6


def test_bytes_lost_by_the_capture_are_counted(read: Read) -> None:
    packets = packets_of(golden_bytes("g3-2026.8.0"))
    data = [i for i, p in enumerate(packets) if len(p[1]) > 3000]
    capture = read([p for i, p in enumerate(packets) if i != data[3]])
    flows = capture.table("flows")
    assert sum(flows["lost_bytes"]) == sum(flows["missing_bytes"]) == packets[data[3]][2] - 66


def test_copies_are_not_retransmissions(read: Read) -> None:
    packets = packets_of(golden_bytes("g3-2026.8.0"))
    twice = [(p[0] + i, *p[1:]) for p in packets for i in (0, 1000)]
    flows, plain = read(twice).table("flows"), golden_capture("g3-2026.8.0").table("flows")
    assert sum(flows["copies"]) == sum(plain["packets"])
    assert flows["retransmitted"] == plain["retransmitted"]


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("pieces", [4, 60])
def test_growing_file_gives_the_same_messages(tmp_path: Path, name: str, pieces: int) -> None:
    raw = golden_bytes(name)
    chance = random.Random(f"{name}{pieces}")
    cuts = [24, *sorted(chance.randrange(24, len(raw)) for _ in range(pieces)), len(raw)]
    path = tmp_path / "growing.pcap"
    path.write_bytes(raw[:24])
    follower, output = Follower(path), []
    with path.open("ab", buffering=0) as file:
        for begin, end in itertools.pairwise(cuts):
            file.write(raw[begin:end])
            output += follower.poll(final=end == len(raw))
    actual = golden_capture(name).messages
    ops: dict[int, list[str]] = {}
    for message, op in zip(actual.op_message.tolist(), actual.op_name, strict=True):
        ops.setdefault(message, []).append(op)
    whole = [
        (flow, time_ns, size, kind, tuple(ops.get(i, ())))
        for i, (flow, time_ns, size, kind) in enumerate(
            zip(
                actual.flow.tolist(),
                actual.time_ns.tolist(),
                actual.size.tolist(),
                actual.kind.tolist(),
                strict=True,
            )
        )
    ]
    assert sorted((s.flow, s.time_ns, s.size, s.kind, s.ops) for s in output) == sorted(whole)

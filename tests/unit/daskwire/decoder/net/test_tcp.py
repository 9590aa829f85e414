"""Reassembly restores the stream that was sent, whatever happens to its segments."""

from __future__ import annotations

import itertools
import random

import numpy as np
from daskwire.decoder.file import pcap as reader
from daskwire.decoder.file import records
from daskwire.decoder.file.pcap import blocks
from daskwire.decoder.file.records import Progress
from daskwire.decoder.file.source import Memory
from daskwire.decoder.net.connections import split_reused
from daskwire.decoder.net.packets.headers import parse_segments
from daskwire.decoder.net.packets.layers import TUNNEL_PORTS, Shared
from daskwire.decoder.net.segments import Segments, concatenate
from daskwire.decoder.net.tcp import Pieces, Stream, reassemble
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.daskwire.build import ACK, PSH, Packet, Talk, pcap


def parse(packets: list[Packet]) -> tuple[Memory, Segments]:
    memory, view = Memory(), memoryview(pcap(packets))
    base = memory.add(view)
    shared = Shared(TUNNEL_PORTS)
    return memory, concatenate(
        [s for r in blocks(view, Progress()) for s in parse_segments(view, base, r, shared)]
    )


def stream_of(memory: Memory, together: Segments, pieces: Pieces, index: int = 0) -> Stream:
    part = slice(int(pieces.begin[index]), int(pieces.begin[index + 1]))
    start, length, captured, offset = (
        getattr(pieces, name)[part] for name in ("start", "length", "captured", "offset")
    )
    when = together.time_ns[pieces.row[part]]
    return Stream(memory, start, length, captured, offset, when, bool(pieces.opened[index]))


@st.composite
def journeys(draw: st.DrawFn) -> tuple[bytes, list[Packet], int]:
    """Draw a stream in segments that overlap, repeat and overtake each other."""
    data = draw(st.binary(min_size=1, max_size=400))
    isn = draw(st.sampled_from([0, 1000, 2**31 - 50, 2**32 - 60, 2**32 - 1]))
    cuts = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=12))})
    spans = [(a, b) for a, b in itertools.pairwise(cuts) if a < b]
    extra = draw(st.lists(st.tuples(st.integers(0, len(data)), st.integers(0, len(data))), max_size=6))
    spans += [(min(s), max(s)) for s in extra if s[0] != s[1]]
    order = draw(st.permutations(spans))
    talk = Talk(isn=(isn, 7)).open()
    for begin, end in order:
        talk.add(0, ACK | PSH, data[begin:end], seq=isn + 1 + begin)
    return data, talk.packets, isn


@settings(max_examples=80, deadline=None)
@given(journeys())
def test_reassembly_restores_the_stream(journey: tuple[bytes, list[Packet], int]) -> None:
    data, packets, _ = journey
    memory, together = parse(packets)
    pieces, disorder = reassemble(together)
    assert int(pieces.length.sum()) == len(data)
    stream = stream_of(memory, together, pieces)
    assert stream.opened and bytes(stream.read(0, len(data)) or b"") == data
    assert stream.read(0, len(data) + 1) is None
    assert sorted([*pieces.row, *disorder.resent]) == np.flatnonzero(together.length).tolist()


@settings(max_examples=40, deadline=None)
@given(journeys(), st.randoms(use_true_random=False))
def test_missing_packets_leave_holes_but_no_wrong_bytes(
    journey: tuple[bytes, list[Packet], int], chance: random.Random
) -> None:
    data, packets, _ = journey
    kept = packets[:1] + [p for p in packets[1:] if chance.random() < 0.6]
    memory, together = parse(kept)
    pieces, _ = reassemble(together)
    if not len(pieces.flow):
        return
    stream = stream_of(memory, together, pieces)
    for start, end in zip(stream.start.tolist(), stream.end.tolist(), strict=True):
        assert bytes(stream.read(start, end - start) or b"") == data[start:end]
    assert np.all(stream.start[1:] >= stream.end[:-1])


@given(st.data())
def test_any_range_can_be_read_in_any_order(data: st.DataObject) -> None:
    """Pieces have holes between them, some are truncated; a range with a missing byte is None."""
    there: dict[int, int] = {}
    start, length, captured, offset, position = [], [], [], [], 0
    content = bytes(range(256))
    for _ in range(data.draw(st.integers(1, 6))):
        position += data.draw(st.sampled_from([0, 0, 3]))
        size = data.draw(st.integers(1, 9))
        kept = data.draw(st.sampled_from([size, size, size // 2]))
        address = data.draw(st.integers(0, 200))
        start, length = [*start, position], [*length, size]
        captured, offset = [*captured, kept], [*offset, address]
        there |= {position + i: content[address + i] for i in range(kept)}
        position += size
    memory = Memory()
    memory.add(memoryview(content))
    sizes, caught = (np.array(column, np.uint32) for column in (length, captured))
    stream = Stream(memory, np.array(start), sizes, caught, np.array(offset), np.arange(len(start)), True)
    for _ in range(12):
        first, size = data.draw(st.integers(0, position)), data.draw(st.integers(1, 12))
        wanted = range(first, first + size)
        expected = bytes(there[i] for i in wanted) if all(i in there for i in wanted) else None
        actual = stream.read(first, size)
        assert (None if actual is None else bytes(actual)) == expected


def test_many_flows_are_separate() -> None:
    packets: list[Packet] = []
    said = {port: b"I am %d. " % port * (port % 300 + 1) for port in range(20_001, 20_400)}
    for port, text in said.items():
        packets += Talk(client=("10.0.0.2", port)).open().say(0, text).packets
    packets.sort(key=lambda p: p[0])
    memory, together = parse(packets)
    pieces, _ = reassemble(together)
    assert len(pieces.flow) == len(said)
    streams = [stream_of(memory, together, pieces, i) for i in range(len(said))]
    assert {bytes(s.read(0, int(s.end[-1])) or b"") for s in streams} == set(said.values())


def test_reused_ports_open_a_new_connection() -> None:
    first = Talk().open().say(0, b"one")
    again = Talk(isn=(9_000_000, 9_500_000), time_ns=first.time_ns).open().say(0, b"two")
    view = memoryview(pcap(first.packets + again.packets))
    memory, shared = Memory(), Shared(TUNNEL_PORTS)
    base = memory.add(view)
    together = concatenate(
        [s for r in blocks(view, Progress()) for s in parse_segments(view, base, r, shared)]
    )
    split_reused(
        together.flow,
        np.flatnonzero(together.flags & 18 == 2),
        np.flatnonzero(together.flags & 18 == 18),
        together.seq,
        together.ack,
        shared.connections,
    )
    pieces, _ = reassemble(together)
    assert [bytes(stream_of(memory, together, pieces, i).read(0, 3) or b"") for i in (0, 1)] == [
        b"one",
        b"two",
    ]
    table = shared.connections
    assert len(table) == 2 and table.endpoints(int(pieces.flow[0])) == table.endpoints(int(pieces.flow[1]))


def test_lockstep_index_equals_the_serial_index() -> None:
    """In a capture large enough for the walkers, with records of very different size."""
    chance = random.Random(5)
    packets = [
        (1_700_000_000 * 10**9 + i * 1000, bytes(chance.choice((60, 66, 1514))), 1514) for i in range(30_000)
    ]
    for order in "<>":
        view = memoryview(pcap(packets, order))
        layout = reader._layout(order, 1_000_000)
        serial = records._serial(view, 24, len(view), layout)
        together = records._lockstep(view, 24, len(view), layout, 100, len(packets))
        assert together is not None
        for actual in (together, records.index(view, 24, len(view), layout)):
            assert np.array_equal(actual.position, serial.position) and len(serial.position) == len(packets)
            assert actual.end == len(view)


def test_records_within_payload_do_not_mislead_the_index() -> None:
    """In a capture of a capture: false starts are detected because the walkers do not meet."""
    inner = pcap([(1_700_000_000 * 10**9, bytes(50), 50)] * 20)[24:]
    packets = [(1_700_000_000 * 10**9 + i, inner + bytes([i % 256]), len(inner) + 1) for i in range(6000)]
    view = memoryview(pcap(packets, "<"))
    layout = reader._layout("<", 1_000_000)
    assert len(records.index(view, 24, len(view), layout).position) == 6000

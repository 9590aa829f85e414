"""Packets that do not stand in the order of time inside a file: sorted, and it is said."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from daskwire import Capture, open_capture
from daskwire.follow import Follower
from daskwire.net.segments import Segments, sort_by_time
from daskwire.schema import Table
from daskwire.terminal.cli import wire
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.daskwire.build import Packet, golden_bytes, packets_of, pcap, pcapng, small_talk
from tests.unit.daskwire.conftest import golden_capture

NAME = "g3-2026.8.0"
PACKETS = [p for p in packets_of(golden_bytes(NAME)) if p[1][12:14] == b"\x08\x00"]  # no ARP
Shuffle = Callable[[list[Packet]], list[Packet]]


def appended(packets: list[Packet]) -> list[Packet]:
    """As ``mergecap -a`` puts two captures of the same time one behind the other."""
    return packets[1::2] + packets[::2]


def within_tens(packets: list[Packet]) -> list[Packet]:
    """As several queues of a card hand them over."""
    chance, found = random.Random(3), []
    for begin in range(0, len(packets), 10):
        found += chance.sample(packets[begin : begin + 10], len(packets[begin : begin + 10]))
    return found


def reversed_order(packets: list[Packet]) -> list[Packet]:
    return packets[::-1]


def numberless(table: Table) -> list[tuple[object, ...]]:
    """Rows of a table; connections are numbered as they come, which is not what is compared."""
    columns = [values for name, values in table.items() if name not in ("connection", "message", "answer")]
    return sorted(zip(*columns, strict=True), key=repr)


@pytest.mark.parametrize("form", [pcap, pcapng])
@pytest.mark.parametrize("shuffle", [appended, within_tens, reversed_order])
def test_the_tables_are_those_of_the_sorted_file(
    tmp_path: Path, shuffle: Shuffle, form: Callable[[list[Packet]], bytes]
) -> None:
    path, packets = tmp_path / "shuffled.pcap", shuffle(PACKETS)
    path.write_bytes(form(packets))
    capture = open_capture(path)
    for name in ("flows", "transfers", "tasks", "heartbeats", "messages"):
        assert numberless(capture.table(name)) == numberless(golden_capture(NAME).table(name)), name
    older = sum(after[0] < before[0] for before, after in pairwise(packets))
    assert capture.files[0].progress.disordered == older > 0


def test_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "shuffled.pcap"
    path.write_bytes(pcap(within_tens(PACKETS)))
    result = CliRunner().invoke(wire, [str(path)])
    assert "packets are older than the one before them: sorted by time" in result.stderr
    path.write_bytes(pcap(PACKETS))
    assert CliRunner().invoke(wire, [str(path)]).stderr == ""


def test_seconds_count_from_the_first_packet_wherever_it_stands(tmp_path: Path) -> None:
    halves = PACKETS[len(PACKETS) // 2 :] + PACKETS[: len(PACKETS) // 2]
    said = []
    for name, packets in (("sorted", PACKETS), ("halves", halves)):
        path = tmp_path / f"{name}.pcap"
        path.write_bytes(pcap(packets))
        said.append(CliRunner().invoke(wire, ["messages", str(path), "--since", "2", "--until", "3"]).stdout)
    assert len(said[0].splitlines()) > 10 and said[0].splitlines()[2].strip().startswith("2.")
    first, second = ([line.split()[:3] for line in lines.splitlines()] for lines in said)
    assert first == second


def test_a_growing_file_is_followed_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "shuffled.pcap"
    path.write_bytes(pcap(within_tens(PACKETS)))
    said = Follower(path).poll(final=True)
    found = golden_capture(NAME).messages
    assert sorted((s.time_ns, s.size) for s in said) == sorted(
        zip(found.time_ns.tolist(), found.size.tolist(), strict=True)
    )


def test_a_file_in_order_is_not_touched(read: Callable[..., Capture]) -> None:
    assert read(PACKETS).files[0].progress.disordered == 0


def test_ipv6_between_ipv4_is_not_disorder(read: Callable[..., Capture]) -> None:
    """They are parsed one after the other, and the order of that was taken for the file's."""
    old = small_talk().packets
    new = small_talk(client=("2001:db8::2", 40000), server=("2001:db8::1", 8786)).packets
    capture = read(sorted(old + [(time_ns + 50_000, *packet) for time_ns, *packet in new]))
    assert capture.files[0].problems() == [] and np.all(np.diff(capture.segments.time_ns) >= 0)


@given(st.lists(st.integers(0, 40)), st.integers(0, 10))
def test_segments_of_one_time_keep_their_order_and_all_columns_move_together(
    late: list[int], apart: int
) -> None:
    times = [1000 + apart * place - back for place, back in enumerate(late)]
    numbers = range(len(times))
    found = Segments(np.array(times, np.int64), *(np.array(numbers, kind) for kind in Segments.TYPES[1:]))
    sort_by_time(found)
    assert found.time_ns.tolist() == sorted(times)
    for column in found.columns()[1:]:
        assert column.tolist() == sorted(numbers, key=times.__getitem__)

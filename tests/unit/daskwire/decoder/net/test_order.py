"""Files whose packets are out of order."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from daskwire import Capture, open_capture
from daskwire.analysis.live.follower import Follower
from daskwire.base.schema import Table
from daskwire.decoder.net.segments import Segments, sort_by_time
from daskwire.terminal.cli import wire
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.daskwire.build import Packet, golden_bytes, packets_of, pcap, pcapng, small_talk
from tests.unit.daskwire.conftest import golden_capture

NAME = "g3-2026.8.0"
PACKETS = [p for p in packets_of(golden_bytes(NAME)) if p[1][12:14] == b"\x08\x00"]  # no ARP
Shuffle = Callable[[list[Packet]], list[Packet]]


def appended(packets: list[Packet]) -> list[Packet]:
    """Concatenate two captures of the same time, as ``mergecap -a`` does."""
    return packets[1::2] + packets[::2]


def within_tens(packets: list[Packet]) -> list[Packet]:
    """Shuffle like a NIC with several queues."""
    chance, actual = random.Random(3), []
    for begin in range(0, len(packets), 10):
        actual += chance.sample(packets[begin : begin + 10], len(packets[begin : begin + 10]))
    return actual


def reversed_order(packets: list[Packet]) -> list[Packet]:
    return packets[::-1]


def numberless(table: Table) -> list[tuple[object, ...]]:
    """Sort the rows of a table, without the columns that depend on the order of connections."""
    columns = [values for name, values in table.items() if name not in ("connection", "message", "answer")]
    return sorted(zip(*columns, strict=True), key=repr)


@pytest.mark.parametrize("form", [pcap, pcapng])
@pytest.mark.parametrize("shuffle", [appended, within_tens, reversed_order])
def test_unsorted_file_gives_the_tables_of_the_sorted_one(
    tmp_path: Path, shuffle: Shuffle, form: Callable[[list[Packet]], bytes]
) -> None:
    path, packets = tmp_path / "shuffled.pcap", shuffle(PACKETS)
    path.write_bytes(form(packets))
    capture = open_capture(path)
    for name in ("flows", "transfers", "tasks", "heartbeats", "messages"):
        assert numberless(capture.table(name)) == numberless(golden_capture(NAME).table(name)), name
    older = sum(after[0] < before[0] for before, after in pairwise(packets))
    assert capture.files[0].progress.disordered == older > 0


def test_unsorted_file_gives_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "shuffled.pcap"
    path.write_bytes(pcap(within_tens(PACKETS)))
    result = CliRunner().invoke(wire, [str(path)])
    assert "of its packets were out of order; all are sorted by time" in result.stderr
    path.write_bytes(pcap(PACKETS))
    assert CliRunner().invoke(wire, [str(path)]).stderr == ""


@pytest.mark.parametrize("form", [pcap, pcapng])
def test_clock_that_was_set_back_is_corrected(tmp_path: Path, form: Callable[[list[Packet]], bytes]) -> None:
    path, middle = tmp_path / "set-back.pcap", len(PACKETS) // 2
    later = [(time_ns - 3600 * 10**9, *packet) for time_ns, *packet in PACKETS[middle:]]
    path.write_bytes(form(PACKETS[:middle] + later))
    capture, whole = open_capture(path), golden_capture(NAME)
    assert capture.table("problems")["problem"] == whole.table("problems")["problem"]
    assert capture.messages.op_name == whole.messages.op_name
    gap_ns = PACKETS[middle][0] - PACKETS[middle - 1][0]
    assert capture.tally.last_ns - capture.tally.first_ns == PACKETS[-1][0] - PACKETS[0][0] - gap_ns
    step_s = 3600 - gap_ns / 1e9
    assert capture.files[0].problems() == [
        f"its clock was set back by {step_s:,.3f} s while it was recorded; this was corrected"
    ]


def test_seconds_count_from_the_earliest_packet(tmp_path: Path) -> None:
    halves = PACKETS[len(PACKETS) // 2 :] + PACKETS[: len(PACKETS) // 2]
    output = []
    for name, packets in (("sorted", PACKETS), ("halves", halves)):
        path = tmp_path / f"{name}.pcap"
        path.write_bytes(pcap(packets))
        output.append(
            CliRunner().invoke(wire, ["messages", str(path), "--since", "2", "--until", "3"]).stdout
        )
    assert len(output[0].splitlines()) > 10 and output[0].splitlines()[2].strip().startswith("2.")
    first, second = ([line.split()[:3] for line in lines.splitlines()] for lines in output)
    assert first == second


def test_follow_sorts_packets_by_time(tmp_path: Path) -> None:
    path = tmp_path / "shuffled.pcap"
    path.write_bytes(pcap(within_tens(PACKETS)))
    output = Follower(path).poll(final=True)
    actual = golden_capture(NAME).messages
    assert sorted((s.time_ns, s.size) for s in output) == sorted(
        zip(actual.time_ns.tolist(), actual.size.tolist(), strict=True)
    )


def test_sorted_file_has_no_disorder(read: Callable[..., Capture]) -> None:
    assert read(PACKETS).files[0].progress.disordered == 0


def test_mixed_ip_versions_are_not_disorder(read: Callable[..., Capture]) -> None:
    """They are parsed in separate batches."""
    old = small_talk().packets
    new = small_talk(client=("2001:db8::2", 40000), server=("2001:db8::1", 8786)).packets
    capture = read(sorted(old + [(time_ns + 50_000, *packet) for time_ns, *packet in new]))
    assert capture.files[0].problems() == [] and np.all(np.diff(capture.segments.time_ns) >= 0)


@given(st.lists(st.integers(0, 40)), st.integers(0, 10))
def test_sort_is_stable_and_moves_all_columns(late: list[int], apart: int) -> None:
    times = [1000 + apart * place - back for place, back in enumerate(late)]
    numbers = range(len(times))
    actual = Segments(np.array(times, np.int64), *(np.array(numbers, kind) for kind in Segments.TYPES[1:]))
    sort_by_time(actual)
    assert actual.time_ns.tolist() == sorted(times)
    for column in actual.columns()[1:]:
        assert column.tolist() == sorted(numbers, key=times.__getitem__)

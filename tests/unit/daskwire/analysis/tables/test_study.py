"""The packet count of the 2019 study, which shows its difference from messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from daskwire import Capture
from daskwire.analysis.tables.study import NAMES, find_names, packets_by_first_op
from daskwire.base.schema import Table

from tests.unit.daskwire.build import HELLO, Talk, g3
from tests.unit.daskwire.conftest import golden_capture

BATCH = [{"op": "compute-task", "pad": "x" * 3000}, {"op": "compute-task"}, {"op": "steal-request"}]
MTU, SUPER = 1448, 65160


def counted(table: Table) -> Counter[tuple[str, str]]:
    actual: Counter[tuple[str, str]] = Counter()
    for source, op, packets in zip(table["source"], table["op"], table["packets"], strict=True):
        actual[source, op] += packets
    return actual


def packets_of(capture: Capture, segment_bytes: int | None = None) -> Table:
    return packets_by_first_op(find_names(capture), segment_bytes)


def batches(mtu: int) -> Talk:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO)).say(0, g3({"op": "register-worker"}))
    return talk.say(1, g3(BATCH), mtu).say(1, g3(BATCH[1:]), mtu)


def test_a_batch_counts_once_and_a_continued_message_as_data(read: Callable[..., Capture]) -> None:
    actual = counted(packets_of(read(batches(MTU).packets)))
    assert actual["scheduler", "compute-task"] == 3 and actual["scheduler", "data"] == 2


def test_count_as_captured_equals_search_by_packet() -> None:
    capture = golden_capture("g1-2.8.0")
    segments, naive = capture.segments, Counter[tuple[str, str]]()
    for row in np.flatnonzero(segments.length).tolist():
        output = bytes(capture.memory.read(int(segments.offset[row]), int(segments.captured[row])))
        text = output.decode(errors="ignore")  # as the notebook did
        op = next((name for name in NAMES if f"op{name}" in text), "data")
        naive[capture.sources[segments.flow[row]], op] += 1
    assert counted(packets_of(capture)) == naive
    assert 0 < naive["scheduler", "compute-task"] < capture.messages.op_name.count("compute-task")


@pytest.mark.parametrize(("captured", "cut"), [(SUPER, MTU), (MTU, SUPER), (500, MTU), (SUPER, 100)])
def test_count_of_resegmented_bytes_equals_capture_of_such_segments(
    read: Callable[..., Capture], captured: int, cut: int
) -> None:
    recomputed = packets_of(read(batches(captured).packets), cut)
    assert recomputed == packets_of(read(batches(cut).packets))


def test_retransmission_is_a_separate_packet(read: Callable[..., Capture]) -> None:
    talk = batches(MTU)
    talk.add(1, 24, g3(BATCH[1:]), seq=talk.isn[1] + 1 + talk.sent[1] - len(g3(BATCH[1:])))
    assert counted(packets_of(read(talk.packets), SUPER))["scheduler", "compute-task"] == 3


def test_truncated_packets_count_as_data(read: Callable[..., Capture]) -> None:
    packets = [(time, data[:58], length) for time, data, length in batches(SUPER).packets]
    whole = packets_of(read(batches(SUPER).packets), MTU)
    cut = packets_of(read(packets), MTU)
    assert set(cut["op"]) == {"data"} and sum(cut["packets"]) == sum(whole["packets"])


def test_a_capture_without_payload_has_no_packets(read: Callable[..., Capture]) -> None:
    table = packets_of(read(Talk().open().packets), MTU)
    assert table == {"source": [], "destination": [], "op": [], "packets": []}

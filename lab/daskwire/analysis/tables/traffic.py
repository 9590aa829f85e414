"""The tables matrix, series and packets: traffic by pair of nodes, by second, and by packet size."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import Ints
from daskwire.base.schema import Table, add_row, empty
from daskwire.decoder.capture import Capture

ETHERNET_PAYLOAD = 1500 - 20 - 20


def matrix(capture: Capture) -> Table:
    """Sum the traffic of each pair of nodes."""
    segments, messages = capture.segments, capture.messages
    flows = len(capture.sources)
    packets = np.bincount(segments.flow, minlength=flows)
    columns = [
        packets,
        np.bincount(segments.flow[segments.length > 0], minlength=flows),
        np.bincount(segments.flow, segments.ip_bytes, minlength=flows),
        np.bincount(segments.flow, segments.length, minlength=flows),
        np.bincount(messages.flow, minlength=flows),
        np.bincount(messages.flow, messages.size, minlength=flows),
    ]
    table = empty("matrix")
    for (cluster, source, destination), rows in _pairs(capture).items():
        sums = [int(column[rows].sum()) for column in columns]
        if any(sums):  # not the other side of a NAT
            add_row(table, source, destination, *sums, cluster)
    return table


def _pairs(capture: Capture) -> dict[tuple[str, str, str], Ints]:
    """Group the flows by pair of nodes, sorted by cluster and name."""
    pairs: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for flow, source in enumerate(capture.sources.tolist()):
        pairs[str(capture.clusters[flow]), source, str(capture.sources[flow ^ 1])].append(flow)
    return {pair: np.array(pairs[pair], np.int64) for pair in sorted(pairs)}


def series(capture: Capture) -> Table:
    """Sum the traffic of each pair of nodes per second."""
    segments = capture.segments
    table = empty("series")
    if not len(segments):
        return table
    pairs = _pairs(capture)
    number = np.zeros(len(capture.sources), np.int64)
    for index, rows in enumerate(pairs.values()):
        number[rows] = index
    second = segments.time_ns // 1_000_000_000
    first = int(second.min())
    code = (second - first) * len(pairs) + number[segments.flow]
    codes, row_of = np.unique(code, return_inverse=True)
    packets = np.bincount(row_of)
    ip_bytes, payload = np.bincount(row_of, segments.ip_bytes), np.bincount(row_of, segments.length)
    names = list(pairs)
    for row, value in enumerate(codes.tolist()):
        elapsed_s, pair = divmod(value, len(pairs))
        cluster, source, destination = names[pair]
        sums = (int(packets[row]), int(ip_bytes[row]), int(payload[row]))
        add_row(table, first + elapsed_s, source, destination, *sums, cluster)
    return table


def packets(capture: Capture) -> Table:
    """Describe the packets of each sender, and whether offloads formed them."""
    segments = capture.segments
    table = empty("packets")
    owners = list(zip(capture.clusters.tolist(), capture.sources.tolist(), strict=True))
    names = sorted(set(owners))
    number_of = {owner: number for number, owner in enumerate(names)}
    sender = np.array([number_of[owner] for owner in owners], np.int32)[segments.flow]
    for number, (cluster, source) in enumerate(names):
        length = segments.length[sender == number]
        if len(length):
            _packet_row(table, source, length, cluster)
    return table


def _packet_row(table: Table, source: str, length: npt.NDArray[np.uint32], cluster: str) -> None:
    data = length[length > 0]
    large = int((data > ETHERNET_PAYLOAD).sum())
    mean = round(float(data.mean()), 1) if len(data) else 0.0
    largest = int(length.max())
    add_row(
        table,
        source,
        len(length),
        len(data),
        len(length) - len(data),
        largest,
        large,
        mean,
        "on" if large else "off",
        cluster,
    )

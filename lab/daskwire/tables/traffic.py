"""Tables about traffic: by pair of nodes, by second, by size of packets."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from daskwire.arrays import Ints
from daskwire.capture import Capture
from daskwire.schema import Table, add_row, empty

ETHERNET_PAYLOAD = 1500 - 20 - 20


def matrix(capture: Capture) -> Table:
    """Traffic by pair of nodes."""
    segments, found = capture.segments, capture.messages
    flows = len(capture.sources)
    packets = np.bincount(segments.flow, minlength=flows)
    columns = [
        packets,
        np.bincount(segments.flow[segments.length > 0], minlength=flows),
        np.bincount(segments.flow, segments.ip_bytes, minlength=flows),
        np.bincount(segments.flow, segments.length, minlength=flows),
        np.bincount(found.flow, minlength=flows),
        np.bincount(found.flow, found.size, minlength=flows),
    ]
    table = empty("matrix")
    for (cluster, source, destination), rows in _pairs(capture).items():
        add_row(table, source, destination, *(int(column[rows].sum()) for column in columns), cluster)
    return table


def _pairs(capture: Capture) -> dict[tuple[str, str, str], Ints]:
    """Flows of each pair of nodes, sorted by cluster and name."""
    pairs: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for flow, source in enumerate(capture.sources.tolist()):
        pairs[str(capture.clusters[flow]), source, str(capture.sources[flow ^ 1])].append(flow)
    return {pair: np.array(pairs[pair], np.int64) for pair in sorted(pairs)}


def series(capture: Capture) -> Table:
    """Traffic by pair of nodes and second."""
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
    used, place = np.unique(code, return_inverse=True)
    packets = np.bincount(place)
    ip_bytes, payload = np.bincount(place, segments.ip_bytes), np.bincount(place, segments.length)
    names = list(pairs)
    for index, value in enumerate(used.tolist()):
        when, pair = divmod(value, len(pairs))
        cluster, source, destination = names[pair]
        sums = (int(packets[index]), int(ip_bytes[index]), int(payload[index]))
        add_row(table, first + when, source, destination, *sums, cluster)
    return table


def packets(capture: Capture) -> Table:
    """What packets looked like by sender, and whether offloads shaped them."""
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

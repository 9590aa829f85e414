"""The table reach: which node connected to which address, with what success, and how far it is."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from daskwire.base.schema import Table, add_row, empty
from daskwire.decoder.capture import Capture
from daskwire.decoder.net.health import Connect, connects

Target = tuple[str, str, str, str, int]  # cluster, source, destination, address and port


def reach(capture: Capture) -> Table:
    """Build one row per node and address that it connected to."""
    groups: defaultdict[Target, list[Connect]] = defaultdict(list)
    for connect in connects(capture.segments, capture.lanes, capture.copied, 2 * len(capture.connections)):
        flow = connect.flow
        nodes = str(capture.clusters[flow]), str(capture.sources[flow]), str(capture.sources[flow ^ 1])
        groups[(*nodes, *capture.connections.endpoints(flow)[2:])].append(connect)
    table = empty("reach")
    for (cluster, source, destination, address, port), group in sorted(groups.items()):
        refused = sum(connect.refused for connect in group)
        answered = sum(connect.answered for connect in group)
        handshakes = [connect.ms for connect in group if connect.ms is not None]
        add_row(
            table,
            source,
            destination,
            address,
            port,
            len(group),
            answered,
            refused,
            len(group) - answered - refused,
            round(float(np.median(handshakes)), 3) if handshakes else None,
            round_trip_ms(capture, [connect.flow for connect in group]),
            cluster,
        )
    return table


def round_trip_ms(capture: Capture, flows: list[int]) -> float | None:
    """Return the RTT between both ends of some flows: from the capture point to one, and to the other."""
    parts = [capture.round_trips.minimum_ms[[flow ^ side for flow in flows]] for side in (0, 1)]
    samples = [part[~np.isnan(part)] for part in parts]
    if not all(map(len, samples)):
        return None
    return round(float(sum(part.min() for part in samples)), 3)

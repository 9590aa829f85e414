"""Workers that announce an address in another network than the rest of the cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import LOSSES, Finding, Kind


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield workers that announce another address than the one from which they reach the scheduler."""
    capture = evidence.capture
    registered: dict[tuple[str, str, str], int] = {}
    for flow in evidence.flows:
        listener = capture.nodes.processes.get(capture.senders[flow])
        if listener and capture.senders[flow ^ 1] in capture.nodes.schedulers:
            registered[evidence.pairs[flow][0], capture.senders[flow][0], listener[0]] = flow
    direct = sum(address == listener for _, address, listener in registered)
    translated = {flow for pair in capture.translations for flow in (*pair, pair[0] ^ 1)}
    flows_at: defaultdict[str, list[int]] = defaultdict(list)
    for flow in evidence.flows:
        for address in {capture.senders[flow][0], capture.senders[flow ^ 1][0]}:
            flows_at[address].append(flow)
    for (cluster, address, announced), flow in sorted(registered.items()):
        if address == announced or not direct or flow in translated:
            continue
        data = flows_at[announced]
        if not data:
            continue
        node = evidence.pairs[flow][1]
        what = (
            f"announces {announced} but reaches the scheduler from {address} (the others announce the address"
            f" they use); {len(data) // 2} connections carry its data over {announced}"
        )
        cost_s = _extra_transfer_s(evidence, node)
        yield Finding(
            KIND, what, (cluster, node, ""), evidence.span(data), cost_s, 0.8, len(data) // 2,
            tuple(data),
        )  # fmt: skip


def _extra_transfer_s(evidence: Evidence, node: str) -> float:
    """Return how much longer a node's transfers took than at the median rate of the others."""
    table = evidence.transfers
    columns = (table["source"], table["destination"], table["wire_ms"], table["bytes"])
    rows: list[tuple[bool, float, int]] = [
        (node in ends, wire_ms, size) for *ends, wire_ms, size in zip(*columns, strict=True) if wire_ms > 0
    ]
    others = [size / wire_ms for own, wire_ms, size in rows if not own]
    if not others:
        return 0.0
    rate = float(np.median(others))
    return sum(max(wire_ms - size / rate, 0.0) for own, wire_ms, size in rows if own) / 1e3


KIND = Kind(
    name="wrong interface",
    meaning="A worker announces an address in another network than the rest of the cluster.",
    threshold=(
        "its address is not the one from which it reaches the scheduler, while other workers' is, and its"
        " data is fetched there"
    ),
    advice="Start the worker with --interface or --host of the fast network.",
    effects=frozenset({"slow link", "bufferbloat"}) | LOSSES,
    detect=detect,
)

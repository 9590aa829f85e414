"""Summarise a capture: its content, its completeness, and the most useful figures."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from daskwire.analysis.tables.completeness import completeness, is_complete
from daskwire.analysis.tables.messages import step_times
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.content import MessageKind
from daskwire.decoder.dask.relays import RELAYED
from daskwire.decoder.net.packets.layers import FRAGMENTS, ORDINARY, UDP_PORT

NOTABLE = 0.01  # share of all packets from which skipped packets matter
UDP_SERVICES = frozenset(  # DNS, DHCP, NTP, NetBIOS, SNMP, QUIC, IKE, syslog, SSDP, SIP, mDNS, LLMNR
    f"{UDP_PORT} {port}"
    for port in (53, 67, 68, 123, 137, 138, 161, 162, 443, 500, 514, 546, 547, 1900, 5060, 5353, 5355)
)
LIKELY = 0.1  # share of all packets from which a UDP port may be a tunnel


def summarise(capture: Capture) -> dict[str, Any]:
    """Return nested plain values, ready for JSON. Shares are 0 to 1, None of nothing."""
    tally, messages, figures = capture.tally, capture.messages, completeness(capture)
    return {
        "files": [
            {
                "path": file.path,
                "bytes": file.bytes,
                "problem": file.progress.problem,
                "dropped_by_capture": file.progress.dropped,
            }
            for file in capture.files
        ],
        "packets": capture.packets,
        "wire_bytes": tally.bytes,
        "seconds": max(tally.last_ns - tally.first_ns, 0) / 1e9 if tally.packets else 0.0,
        "first_ns": tally.first_ns if tally.packets else None,
        "tcp_segments": len(capture.segments),
        "skipped_packets": dict(capture.skipped.most_common()),
        "repeated_packets": tally.repeated,
        "tunnels": dict(tally.tunnels.most_common()),
        "likely_tunnels": likely_tunnels(capture),
        "generation": capture.generation,
        "distributed": sorted(capture.nodes.versions),
        "clusters": list(capture.scheduler_names),
        "connections": len(capture.connections),
        "translated_connections": len(capture.translations),
        "relayed_connections": len(capture.relays),
        "dask_connections": len(capture.conversations),
        "covered_connections": dict(
            Counter(protocol for protocol in capture.other_protocols.values() if protocol != RELAYED)
        ),
        "messages": len(messages),
        "message_bytes": int(messages.size.sum()),
        "ops": dict(Counter(messages.op_name).most_common()),
        "complete": is_complete(capture, figures),
        "completeness": figures,
        "snaplen": snaplen(capture),
        "network": network(capture),
        "times_ms": times(capture),
    }


def likely_tunnels(capture: Capture) -> dict[str, int]:
    """Count packets that may be tunnels with Dask inside, but cannot be decoded.

    If the capture contains no Dask, UDP ports with many packets count too, except those of common services.
    """
    tally = capture.tally
    enough = LIKELY * tally.packets if not capture.conversations else tally.packets + 1
    return {
        name: number
        for name, number in tally.opaque.most_common()
        if number and (not name.startswith(UDP_PORT) or (number >= enough and name not in UDP_SERVICES))
    }


def not_decoded(capture: Capture) -> dict[str, int]:
    """Count skipped packets that may contain Dask, by reason; small numbers only if no Dask was decoded."""
    excluded = {*likely_tunnels(capture), *ORDINARY, FRAGMENTS}
    enough = NOTABLE * capture.packets if capture.conversations else 1
    return {name: n for name, n in capture.skipped.most_common() if n >= enough and name not in excluded}


def snaplen(capture: Capture) -> dict[str, int]:
    """Measure what a small snaplen cost: truncated packets, the bytes kept of each, and undecoded content.

    The result is empty if the truncation cost nothing.
    """
    segments = capture.segments
    cut = np.flatnonzero(segments.captured < segments.length)
    messages = int((capture.messages.kind == MessageKind.CUT).sum())
    unframed = sum(capture.table("flows")["unframed_bytes"])
    if not len(cut) or not messages + unframed:
        return {}
    captured = segments.frame_bytes[cut].astype(np.int64) - segments.length[cut] + segments.captured[cut]
    packets = {"packets": len(cut), "kept_bytes": int(captured.max())}
    return packets | {"messages": messages, "unframed_bytes": unframed}


def network(capture: Capture) -> dict[str, Any]:
    """Aggregate the TCP figures of all flows, and detect offloads."""
    flows, packets = capture.table("flows"), capture.table("packets")
    totals = {
        name: sum(flows[name])
        for name in ("copies", "retransmitted", "spurious", "out_of_order", "zero_windows", "resets")
    }
    trips = [ms for ms in flows["rtt_min_ms"] if ms is not None]
    handshakes = [ms for ms in flows["handshake_ms"] if ms is not None]
    return {
        **totals,
        "rtt_min_ms": min(trips, default=None),
        "handshake_median_ms": round(float(np.median(handshakes)), 4) if handshakes else None,
        "offload": "on" if "on" in packets["offload"] else "off",
    }


def times(capture: Capture) -> dict[str, dict[str, float | None]]:
    """Return quantiles of the steps of tasks, transfers and heartbeats, in milliseconds."""
    tasks, fetches = capture.table("tasks"), step_times(capture)
    heartbeats, gaps = capture.table("heartbeats"), capture.table("gaps")
    columns = {
        "heartbeat interval": heartbeats["interval_ms"],
        "heartbeat answered (scheduler)": heartbeats["answer_ms"],
        "compute-task on wire -> start": tasks["wait_ms"],
        "compute": tasks["compute_ms"],
        "stop -> task-finished on wire": tasks["report_ms"],
        "between tasks on a thread": gaps["gap_ms"],
        "get_data: serve": fetches["serve_ms"],
        "get_data: wire": fetches["wire_ms"],
        "get_data: receive": fetches["receive_ms"],
    }
    return {name: quantiles(values) for name, values in columns.items()}


def quantiles(values: list[Any]) -> dict[str, float | None]:
    """Return the number and the 5th, 50th, 95th and 99th percentile of the values that are not None."""
    numbers, shares = np.array(values, float), (5, 50, 95, 99)
    numbers = numbers[~np.isnan(numbers)]
    result = np.percentile(numbers, shares).tolist() if len(numbers) else [None] * len(shares)
    percentiles = {
        f"p{share}": None if value is None else round(value, 3)
        for share, value in zip(shares, result, strict=True)
    }
    return {"n": len(numbers), **percentiles}

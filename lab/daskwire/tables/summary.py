"""The first answer about a capture: what is in it, how complete it is, and the figures most asked for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from daskwire.capture import Capture
from daskwire.dask.content import Kind
from daskwire.net.skipped import FRAGMENTS, ORDINARY
from daskwire.net.tunnels import UDP_PORT
from daskwire.tables.completeness import completeness, is_complete

NOTABLE = 0.01  # share of all packets from which it matters that some were not looked into
LIKELY = 0.1  # share of all packets from which a UDP port may be a tunnel's


def summarise(capture: Capture) -> dict[str, Any]:
    """Nested plain values, ready for JSON. Shares are 0 to 1, None when there is nothing to share."""
    tally, found = capture.tally, capture.messages
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
        "tunnels": dict(tally.tunnels.most_common()),
        "likely_tunnels": likely_tunnels(capture),
        "generation": capture.generation,
        "distributed": sorted(capture.nodes.versions),
        "clusters": list(capture.scheduler_names),
        "connections": len(capture.connections),
        "translated_connections": len(capture.translations),
        "dask_connections": len(capture.dialogues),
        "covered_connections": dict(Counter(capture.other_protocols.values())),
        "messages": len(found),
        "message_bytes": int(found.size.sum()),
        "ops": dict(Counter(found.op_name).most_common()),
        "complete": is_complete(capture),
        "completeness": completeness(capture),
        "snaplen": snaplen(capture),
        "network": network(capture),
        "times_ms": times(capture),
    }


def likely_tunnels(capture: Capture) -> dict[str, int]:
    """Packets that may hold what is looked for, but cannot be looked into: of known kinds, and where no Dask
    was found also those to UDP ports that much goes to.
    """
    tally = capture.tally
    enough = LIKELY * tally.packets if not capture.dialogues else tally.packets + 1
    found = tally.opaque.most_common()
    return {name: n for name, n in found if n and (not name.startswith(UDP_PORT) or n >= enough)}


def not_looked_into(capture: Capture) -> dict[str, int]:
    """Packets that may hold what is looked for, by the reason why they were skipped; few do not matter where
    Dask was found.
    """
    named = {*likely_tunnels(capture), *ORDINARY, FRAGMENTS}
    enough = NOTABLE * capture.packets if capture.dialogues else 1
    return {name: n for name, n in capture.skipped.most_common() if n >= enough and name not in named}


def snaplen(capture: Capture) -> dict[str, int]:
    """What a small snaplen cost: packets cut, to how many bytes, and what was not understood for it; empty
    when it cost nothing.
    """
    segments = capture.segments
    cut = np.flatnonzero(segments.captured < segments.length)
    messages = int((capture.messages.kind == Kind.CUT).sum())
    unframed = sum(capture.table("flows")["unframed_bytes"])
    if not len(cut) or not messages + unframed:
        return {}
    kept = segments.frame_bytes[cut].astype(np.int64) - segments.length[cut] + segments.captured[cut]
    of_cut = {"packets": len(cut), "kept_bytes": int(kept.max())}
    return of_cut | {"messages": messages, "unframed_bytes": unframed}


def network(capture: Capture) -> dict[str, Any]:
    """TCP's figures over all flows, and whether packet counts mean anything."""
    flows, packets = capture.table("flows"), capture.table("packets")
    totals = {
        name: sum(flows[name])
        for name in ("copies", "retransmitted", "spurious", "out_of_order", "zero_windows", "resets")
    }
    trips = [ms for ms in flows["rtt_min_ms"] if ms is not None]
    shakes = [ms for ms in flows["handshake_ms"] if ms is not None]
    return {
        **totals,
        "rtt_min_ms": min(trips, default=None),
        "handshake_median_ms": round(float(np.median(shakes)), 4) if shakes else None,
        "offload": "on" if "on" in packets["offload"] else "off",
    }


def times(capture: Capture) -> dict[str, dict[str, float | None]]:
    """Quantiles of the steps of tasks, transfers and heartbeats, in milliseconds."""
    tasks, transfers = capture.table("tasks"), capture.table("transfers")
    heartbeats, gaps = capture.table("heartbeats"), capture.table("gaps")
    fetched = [i for i, kind in enumerate(transfers["kind"]) if kind == "get_data"]
    columns = {
        "heartbeat interval": heartbeats["interval_ms"],
        "heartbeat answered (scheduler)": heartbeats["answer_ms"],
        "compute-task on wire -> start": tasks["wait_ms"],
        "compute": tasks["compute_ms"],
        "stop -> task-finished on wire": tasks["report_ms"],
        "between tasks on a thread": gaps["gap_ms"],
        "get_data: serve": [transfers["serve_ms"][i] for i in fetched],
        "get_data: wire": [transfers["wire_ms"][i] for i in fetched],
        "get_data: receive": [transfers["receive_ms"][i] for i in fetched],
    }
    return {name: quantiles(values) for name, values in columns.items()}


def quantiles(values: list[Any]) -> dict[str, float | None]:
    """Number, 5th, 50th, 95th and 99th percentile of the known values."""
    known = np.array([v for v in values if v is not None], float)
    result: dict[str, float | None] = {"n": len(known)}
    for q in (5, 50, 95, 99):
        result[f"p{q}"] = round(float(np.percentile(known, q)), 3) if len(known) else None
    return result

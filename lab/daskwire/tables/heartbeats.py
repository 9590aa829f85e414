"""The table of the workers' heartbeats."""

from __future__ import annotations

from typing import Any

from daskwire.capture import Capture
from daskwire.dask.messagepack import number, text
from daskwire.schema import Table, add_row, empty
from daskwire.tables.exchange import dialogue_rows


def heartbeats(capture: Capture) -> Table:
    """One row per heartbeat of a worker, with its reply."""
    found, table = capture.messages, empty("heartbeats")
    last: dict[tuple[str, str], int] = {}  # by cluster and address: a restarted worker begins anew
    for message, _, said in capture.decoded("heartbeat_worker"):
        worker, begun = str(capture.sources[found.flow[message]]), int(found.time_ns[message])
        cluster = str(capture.clusters[found.flow[message]])
        process = cluster, text(said.get("address") or worker)
        answer = int(found.answer[message])
        reply = _reply(capture, answer)
        announced = number(reply.get("heartbeat-interval"))
        metrics = said.get("metrics")
        metrics = metrics if isinstance(metrics, dict) else {}
        add_row(
            table,
            begun,
            worker,
            (begun - last[process]) / 1e6 if process in last else None,
            announced * 1e3 if announced is not None else None,
            int(found.size[message]),
            int(found.size[answer]) if answer >= 0 else None,
            int(found.time_ns[answer] - found.end_ns[message]) / 1e6 if answer >= 0 else None,
            len(dialogue_rows(capture, message)),
            number(metrics.get("cpu")),
            number(metrics.get("memory")),
            _executing(metrics),
            _latency(metrics),
            cluster,
        )
        last[process] = begun
    return table


def _reply(capture: Capture, answer: int) -> dict[Any, Any]:
    said = capture.said(answer) if answer >= 0 else None
    return said if isinstance(said, dict) else {}


def _executing(metrics: dict[Any, Any]) -> int | None:
    """G1 and early G2 count in ``executing``, later versions in ``task_counts``."""
    counts = metrics.get("task_counts")
    value = counts.get("executing", 0) if isinstance(counts, dict) else metrics.get("executing")
    return value if isinstance(value, int) else None


def _latency(metrics: dict[Any, Any]) -> float | None:
    digests = metrics.get("digests_total_since_heartbeat")
    value = number(digests.get("latency")) if isinstance(digests, dict) else None
    return round(value * 1e3, 3) if value is not None else None

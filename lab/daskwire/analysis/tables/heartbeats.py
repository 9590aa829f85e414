"""The table of worker heartbeats."""

from __future__ import annotations

from typing import Any

from daskwire.analysis.tables.exchange import exchange_length
from daskwire.base.arrays import NONE
from daskwire.base.schema import Table, add_row, empty
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.framing.messagepack import number, text


def heartbeats(capture: Capture) -> Table:
    """Build one row per worker heartbeat and its reply."""
    messages, table = capture.messages, empty("heartbeats")
    last: dict[tuple[str, str], int] = {}  # by cluster and address, so that a restarted worker starts over
    for message, _, fields in capture.decoded("heartbeat_worker"):
        worker, time_ns = str(capture.sources[messages.flow[message]]), int(messages.time_ns[message])
        cluster = str(capture.clusters[messages.flow[message]])
        process = cluster, text(fields.get("address") or worker)
        answer = int(messages.answer[message])
        reply = _reply(capture, answer)
        announced = number(reply.get("heartbeat-interval"))
        metrics = fields.get("metrics")
        metrics = metrics if isinstance(metrics, dict) else {}
        answer_ns = int(messages.time_ns[answer] - messages.end_ns[message]) if answer != NONE else None
        add_row(
            table,
            time_ns,
            worker,
            (time_ns - last[process]) / 1e6 if process in last else None,
            announced * 1e3 if announced is not None else None,
            int(messages.size[message]),
            int(messages.size[answer]) if answer != NONE else None,
            answer_ns / 1e6 if answer_ns is not None else None,
            exchange_length(capture, message),
            number(metrics.get("cpu")),
            number(metrics.get("memory")),
            _executing(metrics),
            _latency(metrics),
            cluster,
        )
        last[process] = time_ns
    return table


def _reply(capture: Capture, answer: int) -> dict[Any, Any]:
    content = capture.content(answer) if answer != NONE else None
    return content if isinstance(content, dict) else {}


def _executing(metrics: dict[Any, Any]) -> int | None:
    """Read ``executing`` (G1 and early G2), or ``task_counts`` (later versions), seceded tasks included."""
    counts = metrics.get("task_counts")
    if isinstance(counts, dict):
        values = [counts.get(state, 0) for state in ("executing", "long-running")]
    else:
        values = [metrics.get("executing")]
    return sum(values) if all(isinstance(value, int) for value in values) else None


def _latency(metrics: dict[Any, Any]) -> float | None:
    digests = metrics.get("digests_total_since_heartbeat")
    value = number(digests.get("latency")) if isinstance(digests, dict) else None
    return round(value * 1e3, 3) if value is not None else None

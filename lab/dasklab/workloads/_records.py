"""Read what scheduler and workers recorded, between the timed parts. The lab's preload records it.

On a cluster without the preload there is nothing to read.
"""

# mypy: disable-error-code="import-untyped,no-untyped-call,method-assign"
from __future__ import annotations

import base64
import json
import time
import zlib
from typing import Any

from distributed import Client

Graphs = list[tuple[float, float, int]]  # when Dask received a graph, when it was sent, its bytes


def watch(client: Client) -> Graphs:
    """Return a list to which the client adds every graph from now on."""
    graphs: Graphs = []
    convert, send, received_at = client._graph_to_futures, client._send_to_scheduler, [0.0]

    def graph_to_futures(*args: Any, **options: Any) -> Any:
        received_at[0] = time.time()
        return convert(*args, **options)

    def send_to_scheduler(message: dict[str, Any]) -> None:
        if message.get("op") == "update-graph":
            frames = getattr(message.get("expr_ser"), "frames", message.get("graph_frames", ()))
            nbytes = sum(memoryview(frame).nbytes for frame in frames)
            graphs.append((received_at[0], time.time(), nbytes))
        send(message)

    client._graph_to_futures, client._send_to_scheduler = graph_to_futures, send_to_scheduler
    return graphs


def take(client: Client, graphs: Graphs) -> dict[str, Any] | None:
    """Return what was recorded since the last call, with the client's clock around the scheduler's answer."""
    new_graphs = graphs[:]
    graphs.clear()
    request_at = time.time()
    scheduler = client.run_on_scheduler(_of_scheduler)
    answer_at = time.time()
    if scheduler is None:
        return None
    workers = {address: records for address, records in client.run(_of_worker).items() if records}
    return {
        "asked": request_at,
        "answered": answer_at,
        "scheduler": scheduler,
        "workers": workers,
        "graphs": new_graphs,
    }


def pack(records: list[dict[str, Any] | None]) -> str | None:
    """Return the records of all runs as text: JSON, compressed, in base 64. None if there are none."""
    if not any(records):
        return None
    text = json.dumps(records, separators=(",", ":"), default=str)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def _of_scheduler(dask_scheduler: Any) -> Any:
    recorder = getattr(dask_scheduler, "recorder", None)
    return recorder.take() if recorder else None


def _of_worker(dask_worker: Any) -> Any:
    recorder = getattr(dask_worker, "recorder", None)
    return recorder.take() if recorder else None

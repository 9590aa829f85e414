"""Asks scheduler and workers for what they recorded, where the lab's preload records it: outside timed parts.

On a cluster without the preload there is nothing to ask for, and nothing is asked.
"""

# mypy: disable-error-code="import-untyped,no-untyped-call,method-assign"
from __future__ import annotations

import base64
import json
import time
import zlib
from typing import Any

from distributed import Client

Sent = list[tuple[float, float, int]]


def watch(client: Client) -> Sent:
    """A list that from now on tells of each graph when Dask was given it, when it was sent, and its bytes."""
    sent: Sent = []
    give, send, began = client._graph_to_futures, client._send_to_scheduler, [0.0]

    def given(*args: Any, **options: Any) -> Any:
        began[0] = time.time()
        return give(*args, **options)

    def sending(message: dict[str, Any]) -> None:
        if message.get("op") == "update-graph":
            packed = getattr(message.get("expr_ser"), "frames", message.get("graph_frames", ()))
            sent.append((began[0], time.time(), sum(memoryview(frame).nbytes for frame in packed)))
        send(message)

    client._graph_to_futures, client._send_to_scheduler = given, sending
    return sent


def take(client: Client, sent: Sent) -> dict[str, Any] | None:
    """What was recorded since the last call; with the client's clock around the scheduler's answer."""
    graphs = sent[:]
    sent.clear()
    asked = time.time()
    scheduler = client.run_on_scheduler(_of_scheduler)
    answered = time.time()
    if scheduler is None:
        return None
    workers = {address: found for address, found in client.run(_of_worker).items() if found}
    return {
        "asked": asked,
        "answered": answered,
        "scheduler": scheduler,
        "workers": workers,
        "graphs": graphs,
    }


def packed(taken: list[dict[str, Any] | None]) -> str | None:
    """All runs' records as text: JSON, compressed, in base 64."""
    if not any(taken):
        return None
    text = json.dumps(taken, separators=(",", ":"), default=str)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def _of_scheduler(dask_scheduler: Any) -> Any:
    inside = getattr(dask_scheduler, "inside", None)
    return inside.take() if inside else None


def _of_worker(dask_worker: Any) -> Any:
    inside = getattr(dask_worker, "inside", None)
    return inside.take() if inside else None

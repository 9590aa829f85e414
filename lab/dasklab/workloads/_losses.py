"""End a workload soon after a process of its cluster is lost.

Such a trial has failed, but the workload does not notice: the other workers compute what the lost one had, or
it waits for a worker that never connects. The scheduler reports lost workers by itself, so that nothing is
asked during the repeats.
"""

# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import os
import sys
from typing import Any

from distributed import Client

PATIENCE_S = 45.0
"""How long to wait for the scheduler, and then for one more worker.

The services start before the client does, so they are ready soon after it even where all hosts are slow.
"""
LOST = 4  # exit status


def end_on_loss(client: Client) -> None:
    """End this process when a worker leaves the cluster."""
    client.subscribe_topic("all", _handle)


def _handle(event: tuple[float, Any]) -> None:
    """Look at a report of the scheduler. The thread of the repeats may be blocked; this is another one."""
    _, report = event
    if isinstance(report, dict) and report.get("action") == "remove-worker":
        sys.stderr.write(f"the worker at {report.get('worker')} was lost\n")
        sys.stderr.flush()
        os._exit(LOST)

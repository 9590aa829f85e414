"""The cluster idles for a while, so that a capture shows its messages without work."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import time

from _harness import Job, main, workers_of
from distributed import Client


def prepare(client: Client, seconds: float = 20.0) -> Job:
    """The answer is the number of workers that are still connected afterwards."""
    workers = len(workers_of(client))

    def run(number: int) -> float:
        time.sleep(seconds)
        return float(len(workers_of(client)))

    return Job(run, expected=float(workers))


if __name__ == "__main__":
    main(prepare)

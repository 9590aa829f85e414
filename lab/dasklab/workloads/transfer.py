"""One worker fetches blocks of data from another: only the path between two workers is used."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import random

from _harness import Job, main, workers_of
from distributed import Client, wait


def prepare(
    client: Client, source: str = "worker-1", target: str = "worker-2", mb: int = 64, blocks: int = 12
) -> Job:
    """Repeat ``i`` moves block ``i``, because ``target`` keeps a block and would not fetch it again."""
    workers = workers_of(client)
    addresses = {worker["name"]: address for address, worker in workers.items()}
    for name in (source, target):
        if name not in addresses:
            raise SystemExit(f"no worker {name!r}; there are {', '.join(sorted(addresses))}")
    numbers = range(blocks)
    data = client.map(
        lambda _: random.randbytes(mb * 10**6), numbers, workers=[addresses[source]], pure=False
    )
    wait(data)

    def run(number: int) -> float:
        size = client.submit(len, data[number % blocks], workers=[addresses[target]], pure=False)
        return float(size.result())

    return Job(run, expected=float(mb * 10**6))


if __name__ == "__main__":
    main(prepare)

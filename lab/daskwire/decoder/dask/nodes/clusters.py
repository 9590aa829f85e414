"""Assign connections to clusters. A cluster is identified by its scheduler's address.

Names cannot identify a cluster: users choose them, and two clusters may use the same ones. An endpoint is a
scheduler if workers or clients register with it, or if it sends or receives ops that only a scheduler does. A
scheduler may have several endpoints (loopback and network, both sides of a NAT). They are one scheduler if a
client's or the scheduler's own identifier proves it, or if the packets are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from daskwire.decoder.dask.nodes.identities import Endpoint, Identities
from daskwire.decoder.net.connections import Connections


def schedulers(identities: Identities) -> dict[Endpoint, Endpoint]:
    """Map each endpoint of a scheduler to its main one, which identifies the cluster.

    The main endpoint, and the first cluster, are those with the most messages that prove a scheduler.
    """
    main = {endpoint: endpoint for endpoint in identities.schedulers}
    for left, right in identities.aliases:
        if left in main and right in main and main[left] != main[right]:
            first, second = sorted((main[left], main[right]), key=lambda e: -identities.schedulers[e])
            main = {endpoint: first if head == second else head for endpoint, head in main.items()}
    total: defaultdict[Endpoint, int] = defaultdict(int)
    for endpoint, head in main.items():
        total[head] += identities.schedulers[endpoint]
    return {endpoint: main[endpoint] for endpoint in sorted(main, key=lambda e: -total[main[e]])}


def by_connection(
    main: dict[Endpoint, Endpoint], identities: Identities, connections: Connections
) -> list[Endpoint | None]:
    """Return the main endpoint of each connection's scheduler, None if the cluster is unknown.

    One end must be a scheduler, or a worker that registered with one. Otherwise the address of one end must
    belong to a single cluster.
    """
    ends = [_ends(connections, number) for number in range(len(connections))]
    result = [
        _first(map(main.get, pair)) or _first(_registered(end, main, identities) for end in pair)
        for pair in ends
    ]
    heads_at: defaultdict[str, set[Endpoint]] = defaultdict(set)
    for pair, head in zip(ends, result, strict=True):
        if head:
            for address, _ in pair:
                heads_at[address].add(head)
    only = {address: next(iter(heads)) for address, heads in heads_at.items() if len(heads) == 1}
    return [
        head or _first(only.get(address) for address, _ in pair)
        for pair, head in zip(ends, result, strict=True)
    ]


def cluster_name(head: Endpoint | None) -> str:
    """Format a cluster for tables: ``address:port`` of its scheduler, empty for None."""
    if head is None:
        return ""
    return f"[{head[0]}]:{head[1]}" if ":" in head[0] else f"{head[0]}:{head[1]}"


def _ends(connections: Connections, number: int) -> tuple[Endpoint, Endpoint]:
    source, source_port, destination, port = connections.endpoints(2 * number)
    return (source, source_port), (destination, port)


def _registered(end: Endpoint, main: dict[Endpoint, Endpoint], identities: Identities) -> Endpoint | None:
    scheduler = identities.registered.get(identities.listener.get(end, end))
    return main[scheduler] if scheduler else None


def _first(heads: Iterable[Endpoint | None]) -> Endpoint | None:
    return next(filter(None, heads), None)

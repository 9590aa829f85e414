"""The additional nodes of an instance, which are chosen at its first start: number, names, addresses."""

from __future__ import annotations

from ipaddress import ip_interface

from minipve.base.errors import UserError
from minipve.base.paths import Paths

MAX_NODES = 9


def names(count: int) -> list[str]:
    """Return the names of the additional nodes in a cluster of ``count`` nodes: pve2, pve3 ..."""
    return [f"pve{number}" for number in range(2, count + 1)]


def choose(paths: Paths, count: int | None) -> None:
    """Give a new instance ``count`` nodes. Raises UserError when an existing one has another number."""
    current = 1 + len(paths.additional_nodes)
    if count is None or count == current:
        return
    if (paths.state / "etc" / "pve").exists():
        raise UserError(
            f"the instance in {paths.state} has {current} node{'s' * (current > 1)};"
            f" the number cannot change to {count}",
            "minipve stop --purge, then start it again",
        )
    for name in names(count):
        paths.of_node(name).state.mkdir(parents=True)


def management(first: str, number: int) -> str:
    """Return the address of node ``number`` in CIDR notation, where node 0 has the address ``first``."""
    address = ip_interface(first)
    return f"{address.ip + number}/{address.network.prefixlen}"

"""The additional nodes of an instance: chosen at its first start, and switched off and on like machines."""

from __future__ import annotations

from ipaddress import ip_interface

from minipve import launch, process
from minipve.network import cables, namespace
from minipve.paths import Paths
from minipve.user_error import UserError

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


def _additional_node(paths: Paths, name: str) -> Paths:
    if name not in paths.additional_nodes:
        names = ", ".join(paths.additional_nodes) or "none (start it with --nodes 2)"
        raise UserError(f"{name!r} is not an additional node; additional nodes: {names}")
    return paths.of_node(name)


def switch_off(paths: Paths, name: str) -> None:
    """Cut a node's power: its guests end at once, and it no longer answers."""
    node = _additional_node(paths, name)
    node.down.touch()
    _cable(paths, name, "down")
    launch.end_guests(node)


def switch_on(paths: Paths, name: str) -> None:
    """Power a node on again, with its guests stopped."""
    node = _additional_node(paths, name)
    _cable(paths, name, "up")
    node.down.unlink(missing_ok=True)


def _cable(paths: Paths, name: str, state: str) -> None:
    network = namespace.find(paths)
    if network is None or not launch.is_running(paths):
        raise UserError(f"no endpoint runs in {paths.state}", "minipve serve --detach")
    process.run(network.argv(cables.switch(name, state)))

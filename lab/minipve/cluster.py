"""The further nodes of an instance: chosen at its first start, switched off and on again as machines are."""

from __future__ import annotations

from ipaddress import ip_interface

from minipve import launch, process
from minipve.network import cables, namespace
from minipve.paths import Paths
from minipve.user_error import UserError

MOST = 9


def names(count: int) -> list[str]:
    """The further nodes of a cluster of ``count``: pve2, pve3 ... (pure)."""
    return [f"pve{number}" for number in range(2, count + 1)]


def choose(paths: Paths, count: int | None) -> None:
    """Make an instance that is new one of ``count`` nodes; refuse another number for one that there is."""
    there = 1 + len(paths.further)
    if count is None or count == there:
        return
    if (paths.state / "etc" / "pve").exists():
        raise UserError(
            f"the instance in {paths.state} has {there} node{'s' * (there > 1)}, and keeps them: not {count}",
            "minipve stop --purge, then start it again",
        )
    for name in names(count):
        paths.of_node(name).state.mkdir(parents=True)


def management(first: str, number: int) -> str:
    """The address of the ``number``-th node (0 is the first, whose address is given), in CIDR notation."""
    address = ip_interface(first)
    return f"{address.ip + number}/{address.network.prefixlen}"


def _known(paths: Paths, name: str) -> Paths:
    if name not in paths.further:
        there = ", ".join(paths.further) or "none: start it with --nodes 2"
        raise UserError(f"no node {name!r} that can be switched off; there are {there}")
    return paths.of_node(name)


def switch_off(paths: Paths, name: str) -> None:
    """Cut a node's power: its guests end at once, and nobody reaches it any more."""
    node = _known(paths, name)
    node.down.touch()
    _cable(paths, name, "down")
    launch.end_guests(node)


def switch_on(paths: Paths, name: str) -> None:
    """Let a node come back, with its guests stopped."""
    node = _known(paths, name)
    _cable(paths, name, "up")
    node.down.unlink(missing_ok=True)


def _cable(paths: Paths, name: str, state: str) -> None:
    held = namespace.find(paths)
    if held is None or not launch.is_running(paths):
        raise UserError(f"no endpoint runs in {paths.state}", "minipve serve --detach")
    process.run(held.argv(cables.switch(name, state)))

"""Plan the API calls that create and remove the lab's own bridges on one node. Pure.

A node keeps network changes aside until a reload (a PUT) applies all of them, whoever made them. A run that
was interrupted between change and reload leaves a bridge that is configured but not active, or active but no
longer configured; both are completed here. Pending changes of others are never applied along with ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.errors import LabError
from dasklab.machines.endpoint.change import Change, Value
from dasklab.machines.endpoint.observed import ObservedNode, bridge_mark, is_own_bridge
from dasklab.machines.inventory.topology import Lab


def make(observed: ObservedNode, lab: Lab, node: str) -> Iterator[Change]:
    """Yield the calls that create each missing bridge of the lab and bring it up.

    Raises:
        LabError: a reload would also apply other users' changes.
    """
    missing = [b for b in lab.bridges if b not in observed.bridges]
    inactive = [b for b in _own_bridges(observed, lab) if not observed.bridges[b].active]
    if not missing and not inactive:
        return
    _refuse_changes_of_others(observed, lab, node)
    for name in missing:
        params: dict[str, Value] = {
            "iface": name,
            "type": "bridge",
            "autostart": 1,
            "comments": bridge_mark(lab.name),
        }
        yield Change("POST", f"/nodes/{node}/network", f"the lab's own bridge {name}", params)
    yield Change("PUT", f"/nodes/{node}/network", f"bring up {', '.join([*missing, *inactive])}")


def remove(observed: ObservedNode, lab: Lab, node: str) -> Iterator[Change]:
    """Yield the calls that remove the lab's own bridges from the configuration and from the kernel.

    Raises:
        LabError: a reload is needed and would also apply other users' changes.
    """
    own = _own_bridges(observed, lab)
    # A bridge that never came up is gone once its configuration is removed; others need a reload.
    live = [b for b in own if observed.bridges[b].active or b not in observed.pending]
    live += [b for b in lab.bridges if _is_removal_pending(b, observed, lab)]
    if live:
        _refuse_changes_of_others(observed, lab, node)
    for name in own:
        yield Change("DELETE", f"/nodes/{node}/network/{name}", f"the lab's own bridge {name}")
    if live:
        yield Change("PUT", f"/nodes/{node}/network", f"take down {', '.join(live)}")


def _own_bridges(observed: ObservedNode, lab: Lab) -> list[str]:
    """Return the configured bridges that the lab created."""
    bridges = observed.bridges
    return [b for b in lab.bridges if b in bridges and is_own_bridge(bridges[b], lab.name)]


def _is_removal_pending(name: str, observed: ObservedNode, lab: Lab) -> bool:
    """Return whether an own bridge was removed from the configuration and waits for a reload."""
    removed_mark = f"-#{bridge_mark(lab.name)}"
    return name not in observed.bridges and removed_mark in observed.pending.get(name, ())


def _refuse_changes_of_others(observed: ObservedNode, lab: Lab, node: str) -> None:
    own = {*_own_bridges(observed, lab), *(b for b in lab.bridges if _is_removal_pending(b, observed, lab))}
    others = sorted(name or "(unclear)" for name in observed.pending if name not in own)
    if others:
        raise LabError(
            f"node {node} has network changes that are not applied yet ({', '.join(others)}); "
            "a reload would apply them together with the lab's bridge",
            "apply or revert them first (web interface: node > System > Network)",
        )

"""Which calls make the lab's own bridges, and take them away again. Pure.

A node keeps changes of its network aside until a reload (a PUT), which applies everybody's. So a run that was
cut off between the two leaves a bridge that is configured and not there, or there and no longer configured;
both are brought to their end here. Others' changes are never applied along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dasklab.errors import LabError
from dasklab.machines.change import Change, Value
from dasklab.machines.observed import SeenNode, bridge_mark, is_own_bridge
from dasklab.machines.topology import Lab


def make(seen: SeenNode, lab: Lab, node: str) -> Iterator[Change]:
    """The calls after which each of the lab's bridges is there.

    Raises:
        LabError: a reload would apply others' changes too.
    """
    missing = [b for b in lab.bridges if b not in seen.bridges]
    unfinished = [b for b in _ours(seen, lab) if not seen.bridges[b].active]
    if not missing and not unfinished:
        return
    _refuse_others(seen, lab, node)
    for name in missing:
        params: dict[str, Value] = {
            "iface": name,
            "type": "bridge",
            "autostart": 1,
            "comments": bridge_mark(lab.name),
        }
        yield Change("POST", f"/nodes/{node}/network", f"the lab's own bridge {name}", params)
    yield Change("PUT", f"/nodes/{node}/network", f"bring up {', '.join([*missing, *unfinished])}")


def remove(seen: SeenNode, lab: Lab, node: str) -> Iterator[Change]:
    """The calls after which none of the lab's own bridges is left, in the configuration or in the kernel.

    Raises:
        LabError: a reload is needed and would apply others' changes too.
    """
    ours = _ours(seen, lab)
    # Of a bridge that never came up nothing is left once it is out of the configuration.
    live = [b for b in ours if seen.bridges[b].active or b not in seen.pending]
    live += [b for b in lab.bridges if _withdrawn(b, seen, lab)]
    if live:
        _refuse_others(seen, lab, node)
    for name in ours:
        yield Change("DELETE", f"/nodes/{node}/network/{name}", f"the lab's own bridge {name}")
    if live:
        yield Change("PUT", f"/nodes/{node}/network", f"take down {', '.join(live)}")


def pending_changes(diff: str) -> Mapping[str, tuple[str, ...]]:
    """Interface -> its changed lines, from the unified diff that a node tells of changes not yet applied.

    Blank lines belong to nobody, nor do comments outside of a stanza: applying them changes nothing.
    """
    found: dict[str, tuple[str, ...]] = {}
    current = ""
    for line in diff.splitlines():
        if line.startswith(("+++", "---", "@@")):
            current = "" if line.startswith("@@") else current
            continue
        sign, words = line[:1], line[1:].split()
        if words and words[0] in ("auto", "iface", "allow-hotplug"):
            current = words[1]
        if sign in ("+", "-") and words and (current or not words[0].startswith("#")):
            found[current] = (*found.get(current, ()), sign + " ".join(words))
    return found


def _ours(seen: SeenNode, lab: Lab) -> list[str]:
    """The lab's bridges in the configuration that the lab made itself."""
    return [b for b in lab.bridges if b in seen.bridges and is_own_bridge(seen.bridges[b], lab.name)]


def _withdrawn(name: str, seen: SeenNode, lab: Lab) -> bool:
    """Was this bridge of ours taken out of the configuration, and a reload still waits?"""
    return name not in seen.bridges and f"-#{bridge_mark(lab.name)}" in seen.pending.get(name, ())


def _refuse_others(seen: SeenNode, lab: Lab, node: str) -> None:
    ours = {*_ours(seen, lab), *(b for b in lab.bridges if _withdrawn(b, seen, lab))}
    others = sorted(name or "(unclear)" for name in seen.pending if name not in ours)
    if others:
        raise LabError(
            f"node {node} has network changes that nobody has applied yet ({', '.join(others)}); "
            "a reload would apply them together with the lab's bridge",
            "apply or revert them first (web interface: node > System > Network)",
        )

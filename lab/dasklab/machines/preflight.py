"""What an endpoint lacks for a lab, told before anything is made there, with the lines that mend it.

Lines for root on a node may be pasted again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dasklab.errors import LabError
from dasklab.machines import privileges
from dasklab.machines.answers import CallError, RejectedError
from dasklab.machines.endpoint import Endpoint
from dasklab.machines.kinds import contents
from dasklab.machines.observe import check_nodes, has_pool, seen_bridges, seen_storages
from dasklab.machines.observed import is_own_bridge
from dasklab.machines.privileges import Need
from dasklab.machines.proxmox import Pve
from dasklab.model.nic import GuestKind

AS_ROOT = "as root on a node (these lines may be pasted again):"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``mend`` holds the lines that mend it, empty when it is well."""

    what: str
    well: bool
    mend: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What the inventory asks of an endpoint, as far as it can be looked at beforehand."""

    lab: str
    pool: str
    nodes: tuple[str, ...]
    storage: str
    image_storage: str
    download: bool
    own_bridge: str
    bridges: frozenset[str]
    kinds: frozenset[GuestKind] = frozenset({"vm"})

    def needs(self, *, network: bool = True) -> list[Need]:
        """The privileges that this takes; ``network``: the lab has to make its bridge itself."""
        several = len(self.nodes) > 1
        return privileges.needed(
            *(self.pool, self.nodes, self.storage, self.image_storage),
            self.bridges - ({self.own_bridge} if several else set()),
            download=self.download,
            network=network and not several,
            zone=privileges.zone(self.lab) if several else "",
        )


def endpoint(wanted: Wanted, said: Mapping[str, Any]) -> Iterator[Finding]:
    """Look at the API. Where the token gets nowhere that is all; what else is missing is told in one go."""
    try:
        pve = Pve(Endpoint.from_inventory(said))
        version = ".".join(map(str, pve.version()))
    except LabError as error:
        helpless = isinstance(error, RejectedError) or not said.get("token_secret")
        hint = (error.hint,) if error.hint else ()
        yield Finding(error.message, False, _from_nothing(wanted, said) if helpless else hint)
        return
    yield Finding(f"{pve.endpoint.url}: Proxmox VE API {version}, token accepted", True)
    check_nodes(pve, wanted.nodes)
    own = len(wanted.nodes) > 1 or _makes_bridge(pve, wanted)
    yield from _pool(pve, wanted.pool)
    yield from _privileges(pve, wanted.needs(network=own))
    for node in wanted.nodes:
        yield from _storages(pve, wanted, node)
        if own:
            yield from _ifupdown2(pve, node)


def _from_nothing(wanted: Wanted, said: Mapping[str, Any]) -> tuple[str, ...]:
    """All lines that make an account for the lab on a node that has none."""
    account = said.get("user") or "lab@pve", said.get("token_id") or "dasklab"
    return (
        AS_ROOT,
        *privileges.account_lines(*account, wanted.pool),
        *privileges.grant_lines(wanted.needs(), *account),
        "The second line prints PROXMOX_TOKEN_SECRET as `value` when it makes the token. If that is lost:",
        f"pveum user token remove {' '.join(account)}, and all lines again.",
    )


def _makes_bridge(pve: Pve, wanted: Wanted) -> bool:
    """Has the lab to make its bridge itself, or did it? One that somebody made by hand is used as it is."""
    bridge = seen_bridges(pve.api.nodes(wanted.nodes[0]).network.get()).get(wanted.own_bridge)
    return bridge is None or is_own_bridge(bridge, wanted.lab)


def _pool(pve: Pve, pool: str) -> Iterator[Finding]:
    if has_pool(pve, pool):
        yield Finding(f"pool {pool}", True)
    else:
        yield Finding(f"pool {pool} does not exist", False, (AS_ROOT, privileges.pool_line(pool)))


def _storages(pve: Pve, wanted: Wanted, node: str) -> Iterator[Finding]:
    storages = seen_storages(pve, node)
    asked: dict[str, set[str]] = {}
    for name, content in contents(wanted.kinds, wanted.storage, wanted.image_storage):
        asked.setdefault(name, set()).add(content)
    for name, needed in asked.items():
        where = f"storage {name} of node {node}"
        kept = storages.get(name, frozenset())
        told = " and ".join(sorted(needed - kept or needed))
        if name not in storages:
            known = ", ".join(sorted(storages)) or "none"
            yield Finding(f"{where} is not there, or this token may not see it; it sees {known}", False)
        elif needed <= kept:
            yield Finding(f"{where} keeps {told}", True)
        else:
            line = f"pvesm set {name} --content {','.join(sorted(kept | needed))}"
            yield Finding(f"{where} does not keep {told}", False, (AS_ROOT, line))


def _privileges(pve: Pve, needs: list[Need]) -> Iterator[Finding]:
    paths = sorted({need.path for need in needs})
    answers = pve.map(lambda path: pve.api.access.permissions.get(path=path).get(path, {}), paths)
    granted = dict(zip(paths, answers, strict=True))
    lacking = {need: missing for need in needs if (missing := privileges.lacking(need, granted[need.path]))}
    if not lacking:
        yield Finding(f"privileges on {', '.join(paths)}", True)
        return
    told = [f"{p} on {n.path} ({n.privileges[p]})" for n, missing in lacking.items() for p in missing]
    lines = privileges.grant_lines(lacking, pve.endpoint.user, pve.endpoint.token_id)
    yield Finding(f"privileges that are missing: {'; '.join(told)}", False, (AS_ROOT, *lines))


def _ifupdown2(pve: Pve, node: str) -> Iterator[Finding]:
    """A node applies changes of its network by ifupdown2 only; some have been upgraded without it."""
    try:
        packages = pve.api.nodes(node).apt.versions.get()
    except CallError:
        return  # the right to look is missing, which is told there, or it is no node with packages
    there = any(p["Package"] == "ifupdown2" and p.get("CurrentState") == "Installed" for p in packages)
    what = "ifupdown2, by which the node applies changes of its network such as the lab's bridge"
    if there:
        yield Finding(f"node {node}: {what}", True)
    else:
        yield Finding(f"node {node} lacks {what}", False, (AS_ROOT, "apt install ifupdown2"))

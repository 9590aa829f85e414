"""Check what an endpoint lacks for a lab before anything is created there, with the commands that fix it.

The commands for root on a node may be run any number of times.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from dasklab.errors import LabError
from dasklab.machines.endpoint import privileges
from dasklab.machines.endpoint.api_errors import QUORUM_HINT, CallError, RejectedError
from dasklab.machines.endpoint.guest_kinds import contents
from dasklab.machines.endpoint.observe import check_nodes, has_pool, observed_bridges, observed_storages
from dasklab.machines.endpoint.observed import is_own_bridge
from dasklab.machines.endpoint.privileges import Need
from dasklab.machines.endpoint.proxmox import Pve
from dasklab.machines.inventory.endpoint import Endpoint
from dasklab.machines.inventory.topology import zone_of
from dasklab.model.settings.nic import GuestKind

OWN_IFUPDOWN2 = re.compile(r"\+(pmx|pve)")  # in the version of Proxmox's build; the API refuses Debian's
AS_ROOT = "as root on a node (these lines may be run again):"


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``fix`` are lines that say how to fix it, none if it is ``ok``.

    A note is ``ok``, too: nothing needs it, but it says what to expect.
    """

    text: str
    ok: bool
    fix: Annotated[tuple[str, ...], Field(description="Lines that say how to fix it.")] = ()
    is_note: Annotated[bool, Field(exclude=True)] = False


@dataclass(frozen=True)
class Requirements:
    """What a lab requires of an endpoint, as far as it can be checked beforehand.

    Args:
        lab: the lab's name.
        pool: the pool of its guests.
        nodes: the nodes of its guests.
        storage: the storage for disks.
        image_storage: the storage for images.
        download: whether the nodes download the image themselves.
        own_bridge: the bridge that the lab creates.
        bridges: all bridges of its NICs.
        kinds: the kinds of its guests.
    """

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
        """Return the privileges that the lab needs. ``network``: whether the lab has to create its bridge."""
        several = len(self.nodes) > 1
        return privileges.needed(
            *(self.pool, self.nodes, self.storage, self.image_storage),
            self.bridges - ({self.own_bridge} if several else set()),
            download=self.download,
            network=network and not several,
            zone=zone_of(self.lab) if several else "",
            kinds=self.kinds,
        )


def endpoint(required: Requirements, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Check the endpoint. If the token is not accepted, that is the only finding; otherwise check everything.

    Args:
        required: what the lab requires.
        settings: the inventory's ``proxmox`` mapping.

    Raises:
        LabError: a node does not exist or is down.
    """
    try:
        pve = Pve(Endpoint.from_inventory(settings))
        version = ".".join(map(str, pve.version()))
    except LabError as error:
        has_no_account = isinstance(error, RejectedError) or not settings.get("token_secret")
        hint = (error.hint,) if error.hint else ()
        yield Finding(error.message, False, _account_lines(required, settings) if has_no_account else hint)
        return
    yield Finding(f"{pve.endpoint.url}: Proxmox VE API {version}, token accepted", True)
    check_nodes(pve, required.nodes)
    yield from _quorum(pve)
    creates_network = len(required.nodes) > 1 or _creates_bridge(pve, required)
    yield from _pool(pve, required.pool)
    yield from _privileges(pve, required.needs(network=creates_network))
    for node in required.nodes:
        yield from _storages(pve, required, node)
        if creates_network:
            yield from _ifupdown2(pve, node)


def _account_lines(required: Requirements, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the commands that create an account for the lab, with all privileges."""
    user, _, full_id = str(settings.get("user") or "lab@pve").partition("!")
    account = user, str(settings.get("token_id") or full_id or "dasklab").rpartition("!")[2]
    return (
        AS_ROOT,
        *privileges.account_lines(*account, required.pool),
        *privileges.grant_lines(required.needs(), *account),
        "The second line prints PROXMOX_TOKEN_SECRET as `value` when it creates the token. If you lost it:",
        f"pveum user token remove {shlex.join(account)}, and all lines again.",
    )


def _creates_bridge(pve: Pve, required: Requirements) -> bool:
    """Return whether the lab creates its bridge. A bridge that someone else made is used as it is."""
    bridge = observed_bridges(pve.api.nodes(required.nodes[0]).network.get()).get(required.own_bridge)
    return bridge is None or is_own_bridge(bridge, required.lab)


def _quorum(pve: Pve) -> Iterator[Finding]:
    """Check that the cluster accepts changes. Only a token with Sys.Audit on / may look."""
    try:
        rows = pve.api.cluster.status.get()
    except CallError:
        return
    cluster = next((row for row in rows if row.get("type") == "cluster"), None)
    if cluster is None:
        return  # a single node
    offline = sorted(str(row["name"]) for row in rows if row.get("type") == "node" and not row.get("online"))
    away = f" (offline: {', '.join(offline)})" if offline else ""
    if cluster.get("quorate"):
        yield Finding(f"cluster {cluster.get('name')} has quorum{away}", True)
    else:
        text = f"cluster {cluster.get('name')} has no quorum{away}, so it accepts no changes"
        yield Finding(text, False, (QUORUM_HINT,))


def _pool(pve: Pve, pool: str) -> Iterator[Finding]:
    if has_pool(pve, pool):
        yield Finding(f"pool {pool}", True)
    else:
        yield Finding(f"pool {pool} does not exist", False, (AS_ROOT, privileges.pool_line(pool)))


def _storages(pve: Pve, required: Requirements, node: str) -> Iterator[Finding]:
    storages = observed_storages(pve, node)
    by_storage: dict[str, set[str]] = {}
    for name, content in contents(required.kinds, required.storage, required.image_storage):
        by_storage.setdefault(name, set()).add(content)
    for name, needed in by_storage.items():
        where = f"storage {name} of node {node}"
        allowed = storages.get(name, frozenset())
        types = " and ".join(sorted(needed - allowed or needed))
        if name not in storages:
            visible = ", ".join(sorted(storages)) or "none"
            yield Finding(f"{where} does not exist, or this token may not see it; it sees {visible}", False)
        elif needed <= allowed:
            yield Finding(f"{where} allows {types}", True)
        else:
            line = f"pvesm set {shlex.quote(name)} --content {','.join(sorted(allowed | needed))}"
            yield Finding(f"{where} does not allow {types}", False, (AS_ROOT, line))


def _privileges(pve: Pve, needs: list[Need]) -> Iterator[Finding]:
    paths = sorted({need.path for need in needs})
    answers = pve.map(lambda path: pve.api.access.permissions.get(path=path).get(path, {}), paths)
    granted = dict(zip(paths, answers, strict=True))
    lacking = {need: missing for need in needs if (missing := privileges.lacking(need, granted[need.path]))}
    if not lacking:
        yield Finding(f"privileges on {', '.join(paths)}", True)
        return
    texts = [f"{p} on {n.path} ({n.privileges[p]})" for n, missing in lacking.items() for p in missing]
    lines = privileges.grant_lines(lacking, pve.endpoint.user, pve.endpoint.token_id)
    yield Finding(f"missing privileges: {'; '.join(texts)}", False, (AS_ROOT, *lines))


def _ifupdown2(pve: Pve, node: str) -> Iterator[Finding]:
    """Check for ifupdown2, which applies a node's network changes. Old installations may lack it."""
    try:
        packages = pve.api.nodes(node).apt.versions.get()
    except CallError:
        return  # no privilege to look, which is reported with the privileges; or a node without packages
    row: Mapping[str, Any] = next((row for row in packages if row["Package"] == "ifupdown2"), {})
    is_installed = row.get("CurrentState") == "Installed"
    version = str(row.get("OldVersion") or "")  # the installed one; Version is what an upgrade would install
    purpose = "ifupdown2, which applies network changes such as the lab's bridge"
    if is_installed and version and not OWN_IFUPDOWN2.search(version):
        text = f"node {node} has Debian's ifupdown2 {version}; the API needs Proxmox's for network changes"
        line = "apt install ifupdown2 (from Proxmox's repository; its version contains +pmx)"
        yield Finding(text, False, (AS_ROOT, line))
    elif is_installed:
        yield Finding(f"node {node}: {purpose}", True)
    else:
        yield Finding(f"node {node} lacks {purpose}", False, (AS_ROOT, "apt install ifupdown2"))

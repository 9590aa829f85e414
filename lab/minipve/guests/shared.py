"""Operations on virtual machines and containers alike: pools, permissions, tags, complete removal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from minipve.access import permissions
from minipve.access.permissions import Permit
from minipve.base.errors import ApiError, denied
from minipve.config.rules.formats import split_list
from minipve.config.rules.schema import Kind
from minipve.node.node import Node

UNFINISHED = ("create", "clone", "destroyed")  # config locks of a guest that is not complete
Forget = Callable[[Node, int], None]


def check_pool(node: Node, pool: str | None) -> None:
    """Raise 403, as PVE does, when the pool does not exist."""
    if pool is not None and pool not in node.access.data["pools"]:
        raise denied(f"pool '{pool}' does not exist")


def is_elsewhere(node: Node, target: str | None) -> bool:
    """Return whether ``target`` is another node than ``node``. Raises 500 when there is no such node."""
    if target in (None, node.name, "localhost"):
        return False
    if target not in node.nodes:
        raise ApiError(f"no such cluster node '{target}'")
    return True


def check_allocate(permit: Permit, vmid: int, pool: str | None) -> None:
    """Raise 403 unless the caller may create the VMID, by a privilege on it or on the new guest's pool."""
    right = permissions.NEW_GUEST
    paths = [right.path.format(vmid=vmid), *([f"/pool/{pool}"] if pool else [])]
    if not any(permit.has(path, right.privileges) for path in paths):
        raise denied()


def check_bridge(
    permit: Permit, bridge: str | None, tag: int | None, right: permissions.Right = permissions.BRIDGE
) -> None:
    """Raise 403 without the right on the bridge (and VLAN) of a NIC."""
    if bridge:
        zone = permit.zone_of(bridge)
        permit.need_right(right, zone=zone, bridge=bridge + (f"/{tag}" if tag else ""))


def check_tags(permit: Permit, vmid: int) -> None:
    """Raise 403 unless the caller may set tags on the guest itself. Privileges on its pool do not count."""
    permit.require(f"/vms/{vmid}", ["VM.Config.Options"])


def tags(text: str) -> str:
    """Return tags as PVE stores them: in lower case, sorted, without duplicates."""
    return ";".join(sorted({tag.lower() for tag in split_list(text)}))


def add_to_pool(node: Node, pool: str | None, vmid: int) -> None:
    if pool is None:
        return
    with node.access.change() as data:
        if pool not in data["pools"]:
            raise ApiError(f"pool '{pool}' does not exist")
        if vmid not in data["pools"][pool]["vms"]:
            data["pools"][pool]["vms"].append(vmid)


def forget_rights(node: Node, vmid: int) -> None:
    """Remove a VMID from the access-control list and from all pools."""
    with node.access.change() as data:
        data["acl"] = [a for a in data["acl"] if a["path"] != f"/vms/{vmid}"]
        for pool in data["pools"].values():
            if vmid in pool["vms"]:
                pool["vms"].remove(vmid)


def remove(node: Node, kind: Kind, vmid: int, keep: Sequence[str] = ()) -> None:
    """Remove a guest's volumes except ``keep``, and its configuration."""
    for volid in node.storage.of_vm(vmid):
        if volid not in keep:
            node.storage.remove(volid)
    node.storage.remove_empty_folder(vmid)
    node.store(kind).remove(vmid)


@contextmanager
def undo_on_failure(node: Node, kind: Kind, vmid: int, forget: Forget | None = None) -> Iterator[None]:
    """Remove the new guest and its new volumes if the block fails."""
    before = node.storage.of_vm(vmid)
    try:
        yield
        node.store(kind).journal.end(vmid)
    except BaseException:
        if forget:
            forget(node, vmid)
        remove(node, kind, vmid, before)
        raise


def recover(node: Node, kind: Kind, forget: Forget | None = None) -> list[int]:
    """Remove guests whose creation or removal a killed endpoint did not finish. Returns their VMIDs.

    A new guest has one of the locks in ``UNFINISHED`` until it is in its owner's pool. Otherwise a VMID could
    be occupied by a guest that its owner may not see. A lock without a journal entry was set by root, and
    that guest stays.
    """
    unfinished = node.store(kind).unfinished(UNFINISHED)
    for vmid in unfinished:
        if forget:
            forget(node, vmid)
        remove(node, kind, vmid)
        forget_rights(node, vmid)
    return unfinished

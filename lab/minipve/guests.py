"""What virtual machines and containers have in common: pools, rights, tags, bridges; to be whole or gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from minipve import firewall
from minipve.access.permit import Permit
from minipve.config.formats import split_list
from minipve.config.kinds import Kind
from minipve.errors import ApiError, denied
from minipve.node import Node

UNFINISHED = ("create", "clone", "destroyed")  # config locks of a guest that is not yet, or no longer, whole
Forget = Callable[[Node, int], None]


def check_pool(node: Node, pool: str | None) -> None:
    """403, as a node has it, when the named pool does not exist."""
    if pool is not None and pool not in node.access.data["pools"]:
        raise denied(f"pool '{pool}' does not exist")


def is_elsewhere(node: Node, target: str | None) -> bool:
    """Whether a clone is to go to another node than its source is on; 500 for one that there is not."""
    if target in (None, node.name, "localhost"):
        return False
    if target not in node.nodes:
        raise ApiError(f"no such cluster node '{target}'")
    return True


def check_allocate(permit: Permit, vmid: int, pool: str | None) -> None:
    """403 unless the caller may make a guest of that VMID, by right on it or on the pool that it goes to."""
    if not permit.has(f"/vms/{vmid}", ["VM.Allocate"]) and not (
        pool and permit.has(f"/pool/{pool}", ["VM.Allocate"])
    ):
        raise denied()


def check_bridge(permit: Permit, bridge: str | None, tag: int | None) -> None:
    """403 without SDN.Use on the bridge (and VLAN) of a NIC."""
    if bridge:
        zone = permit.zone_of(bridge)
        permit.need(f"/sdn/zones/{zone}/{bridge}" + (f"/{tag}" if tag else ""), ["SDN.Use"])


def check_tags(permit: Permit, vmid: int) -> None:
    """403 unless the caller may set tags: asked of the guest itself, never of the pool of a new one."""
    permit.need(f"/vms/{vmid}", ["VM.Config.Options"])


def tags(text: str) -> str:
    """Tags as they are stored: in lower case, sorted, each once (pure)."""
    return ";".join(sorted({tag.lower() for tag in split_list(text)}))


def add_to_pool(node: Node, pool: str | None, vmid: int) -> None:
    """Make the guest a member of ``pool``."""
    if pool is None:
        return
    with node.access.change() as data:
        if pool not in data["pools"]:
            raise ApiError(f"pool '{pool}' does not exist")
        if vmid not in data["pools"][pool]["vms"]:
            data["pools"][pool]["vms"].append(vmid)


def forget_rights(node: Node, vmid: int) -> None:
    """Remove what a VMID stands for in access control: rights on it, its place in pools."""
    with node.access.change() as data:
        data["acl"] = [a for a in data["acl"] if a["path"] != f"/vms/{vmid}"]
        for pool in data["pools"].values():
            if vmid in pool["vms"]:
                pool["vms"].remove(vmid)


def remove(node: Node, kind: Kind, vmid: int, kept: Sequence[str] = ()) -> None:
    """Remove a guest's volumes (but those ``kept``), its firewall options and its configuration."""
    for volid in node.storage.of_vm(vmid):
        if volid not in kept:
            node.storage.remove(volid)
    node.storage.remove_empty_folder(vmid)
    firewall.forget(node, vmid)
    node.store(kind).remove(vmid)


@contextmanager
def undo_on_failure(node: Node, kind: Kind, vmid: int, forget: Forget | None = None) -> Iterator[None]:
    """Remove what was made of a guest when the block fails, and only that."""
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
    """Remove the guests that a killed endpoint left half-made or half-removed; returns their VMIDs.

    While a guest is not in the pool of those who made it, its configuration holds one of these locks: nobody
    is left with a VMID that is taken by a guest they may not see. A lock that the journal does not know of
    was set by root, and such a guest is left alone.
    """
    half = node.store(kind).unfinished(UNFINISHED)
    for vmid in half:
        if forget:
            forget(node, vmid)
        remove(node, kind, vmid)
        forget_rights(node, vmid)
    return half

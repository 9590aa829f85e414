"""Observed and wanted in, the list of API calls that leads from one to the other out.

Pure: nothing here talks to an endpoint. An empty plan is idempotence; printed, a plan is the dry run and
the diff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from urllib.parse import unquote

from dasklab.errors import LabError
from dasklab.machines import bridges, containers, images, vms, zones
from dasklab.machines.change import Chain, Change, Step, Value, chain
from dasklab.machines.kinds import KINDS, contents
from dasklab.machines.observed import Observed, SeenGuest, is_ours
from dasklab.machines.topology import Guest, Lab, check_unique, template_name
from dasklab.model.nic import GuestKind, net_from_pve, net_keys


def plan(seen: Observed, lab: Lab) -> list[Step]:
    """Return the steps that make the endpoint carry ``lab`` and start it.

    Raises:
        LabError: something foreign is in the way, or the wish contradicts itself.
    """
    check_unique(lab)
    refuse_foreign(seen, lab)
    refuse_storages(seen, lab)
    doomed = _doomed(seen, lab)
    gone = {guest.vmid for guest in doomed}
    left = {vmid: guest for vmid, guest in seen.guests.items() if vmid not in gone}
    steps = [
        Step("bridges", chain(_bridges(seen, lab))),
        *_removals(doomed, "no longer as the inventory has it"),
        Step("image", tuple(images.make(seen, lab, left))),
        Step("template", tuple(_templates(left, lab))),
        Step("machines", tuple(c for c in (_guest(left.get(g.vmid), g, lab) for g in lab.guests) if c)),
    ]
    return [step for step in steps if step.chains]


def plan_removal(seen: Observed, lab: Lab) -> list[Step]:
    """Return the steps that remove all that carries this lab's mark: machines, template, bridges, images.

    The images come last: a token may lack the right to remove them, and then the rest is gone already.
    """
    ours = [guest for guest in seen.guests.values() if is_ours(guest, lab)]
    own = {node: tuple(bridges.remove(found, lab, node)) for node, found in seen.nodes.items()}
    steps = [
        *_removals(ours, "the lab is removed"),
        Step("zone", chain(zones.remove(seen, lab))),
        Step("bridges", tuple(calls for calls in own.values() if calls)),
        Step("image", tuple(images.remove(seen, lab))),
    ]
    return [step for step in steps if step.chains]


def refuse_foreign(seen: Observed, lab: Lab) -> None:
    """Refuse to touch a guest that stands on a wanted VMID and is not this lab's, or one that is locked.

    Raises:
        LabError: naming the guest, its node and what to do.
    """
    for vmid, name in _places(lab).items():
        guest = seen.guests.get(vmid)
        if vmid in seen.taken:
            raise LabError(
                f"VMID {vmid} is wanted for {name}, but a machine that this token may not see has it",
                "choose another lab_first_vmid in the inventory",
            )
        if guest is None:
            continue
        if not is_ours(guest, lab):
            raise LabError(
                f"VMID {vmid} is wanted for {name}, but belongs to {guest.name!r} on node {guest.node}, "
                f"which has no tag {lab.name!r}",
                "choose another lab_first_vmid in the inventory; the tool never touches VMs without its tag",
            )
        if guest.lock:
            unlock = f"{KINDS[guest.kind].TOOL} unlock {vmid}"
            raise LabError(
                f"VM {vmid} ({name}) is locked ({guest.lock}) and stayed so",
                f"let that operation finish; if none is running: '{unlock}' on node {guest.node}",
            )


def _places(lab: Lab) -> dict[int, str]:
    """VMID -> whom it is wanted for; the template's even where no virtual machine is: one may be next."""
    templates = {vmid: template_name(lab, vmid) for vmid in lab.templates}
    return templates | {guest.vmid: guest.name for guest in lab.guests}


def refuse_storages(seen: Observed, lab: Lab) -> None:
    """Refuse storages that a node lacks, or that do not take what the lab puts there.

    Raises:
        LabError: naming what there is, and the line that mends it.
    """
    asked = contents(lab.kinds, lab.storage, lab.image_storage)
    for node, (name, content) in product(lab.nodes, asked):
        storages = seen.nodes[node].storages
        if name not in storages:
            known = ", ".join(sorted(storages)) or "none that this token may see"
            raise LabError(f"node {node} has no storage {name!r}; it has {known}")
        kept = storages[name]
        if content not in kept:
            hint = f"as root on the node: pvesm set {name} --content {','.join(sorted({*kept, content}))}"
            raise LabError(f"storage {name!r} does not take {content!r} content", hint)


def _doomed(seen: Observed, lab: Lab) -> list[SeenGuest]:
    """What of the lab's own has to go: what is not wanted, or made of something else than now."""
    ours = [guest for guest in seen.guests.values() if is_ours(guest, lab)]
    wanted: dict[int, tuple[GuestKind, str]] = {vmid: ("vm", node) for vmid, node in lab.templates.items()}
    wanted |= {guest.vmid: (guest.kind, guest.node) for guest in lab.guests}
    stale = _stale_nodes([guest for guest in ours if guest.kind == "vm"], lab) if "vm" in lab.kinds else set()
    return [
        guest
        for guest in ours
        if (guest.kind, guest.node) != wanted.get(guest.vmid)
        or (guest.node in stale if guest.kind == "vm" else _is_stale(guest, lab))
    ]


def _stale_nodes(ours: list[SeenGuest], lab: Lab) -> set[str]:
    """Nodes whose template is another one, unfinished or of another image: its linked clones go with it."""
    wanted = vms.template_description(lab)
    return {
        guest.node
        for guest in ours
        if guest.is_template != (lab.templates.get(guest.vmid) == guest.node)
        or (guest.is_template and guest.description != wanted)
    }


def _is_stale(container: SeenGuest, lab: Lab) -> bool:
    return container.description != containers.description(lab)


def _removals(doomed: list[SeenGuest], why: str) -> Iterator[Step]:
    """Machines first: a template may only go after its linked clones."""
    for name, template in (("removal", False), ("template removal", True)):
        yield Step(name, tuple(_removal(guest, why) for guest in doomed if guest.is_template == template))


def _removal(guest: SeenGuest, why: str) -> Chain:
    path = f"/nodes/{guest.node}/{KINDS[guest.kind].API}/{guest.vmid}"
    stop = [Change("POST", f"{path}/status/stop", f"stop {guest.name}")] if guest.status == "running" else []
    delete = Change("DELETE", path, f"{guest.name}: {why}", {"purge": 1, "destroy-unreferenced-disks": 1})
    return (*stop, delete)


def _bridges(seen: Observed, lab: Lab) -> Iterator[Change]:
    """The lab's own bridges: on one node a bridge, on several a vnet.

    Raises:
        LabError: the lab was on several nodes, and its vnet is in the way.
    """
    if len(lab.nodes) > 1:
        return zones.make(seen, lab)
    if any(zones.remove(seen, lab)):
        raise LabError(
            "this lab was on several nodes, and its vnet is still there", "dasklab destroy, and again"
        )
    return bridges.make(seen.nodes[lab.nodes[0]], lab, lab.nodes[0])


def _templates(left: Mapping[int, SeenGuest], lab: Lab) -> Iterator[Chain]:
    """A chain for each node that has virtual machines, and no template yet."""
    used = {guest.node for guest in lab.guests if guest.kind == "vm"}
    for vmid, node in lab.templates.items():
        if node in used and vmid not in left:
            yield tuple(vms.template(lab, node))


def _guest(seen: SeenGuest | None, guest: Guest, lab: Lab) -> Chain:
    return tuple(KINDS[guest.kind].make(guest, lab) if seen is None else _adjust(seen, guest, lab))


def _adjust(seen: SeenGuest, guest: Guest, lab: Lab) -> Iterator[Change]:
    kind = KINDS[guest.kind]
    path = f"/nodes/{seen.node}/{kind.API}/{guest.vmid}"
    have, want = seen.config or {}, kind.config(guest, lab)
    params = {k: v for k, v in want.items() if _canonical(k, have.get(k)) != _canonical(k, v)}
    surplus = [key for key in net_keys(have) if key not in want]
    if surplus:
        params["delete"] = ",".join(surplus)
    live = not seen.pending and all(kind.is_live(k, have.get(k), v) for k, v in params.items())
    running = seen.status == "running"
    if running and not live:
        yield Change(
            "POST",
            f"{path}/status/stop",
            f"{guest.name}: needs a stop: {', '.join(sorted(params)) or 'pending changes'}",
        )
    if params:
        yield Change("PUT", f"{path}/config", f"{guest.name}: {_differences(have, params)}", params)
    if not running or not live:
        yield Change("POST", f"{path}/status/start", f"start {guest.name}")


def _canonical(key: str, value: Value | None) -> object:
    """A form in which equal settings are equal, however they are spelt."""
    if value is None:
        return None
    if net_keys([key]):
        return net_from_pve(str(value))
    if key == "sshkeys":
        return unquote(str(value)).strip()
    if key == "tags":
        return frozenset(str(value).replace(";", ",").split(","))
    return str(value).strip()  # a node ends a description with a line break


def _differences(have: Mapping[str, str], params: Mapping[str, Value]) -> str:
    shown = [
        k if k in {"sshkeys", "delete"} else f"{k} {have.get(k, 'unset')} -> {v}" for k, v in params.items()
    ]
    return "; ".join(shown)

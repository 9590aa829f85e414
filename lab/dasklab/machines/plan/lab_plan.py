"""Plan the API calls that change what the endpoint has into what the inventory requests.

Pure: nothing here talks to an endpoint. An empty plan means that nothing differs. A printed plan is the dry
run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from shlex import quote
from typing import Protocol
from urllib.parse import unquote

from dasklab.errors import LabError
from dasklab.machines.endpoint import lab_note
from dasklab.machines.endpoint.change import Chain, Change, Step, Value, chain
from dasklab.machines.endpoint.guest_kinds import KINDS, contents
from dasklab.machines.endpoint.observed import Observed, ObservedGuest, is_ours
from dasklab.machines.inventory.topology import Guest, Lab, check_unique, template_name
from dasklab.machines.plan import bridges, containers, images, vms, zones
from dasklab.model.settings.nic import MODELS, GuestKind, net_from_pve, net_keys


def plan(observed: Observed, lab: Lab) -> list[Step]:
    """Return the steps that create the lab or adjust it, and start its machines.

    Raises:
        LabError: something that is not this lab's is in the way, or the request contradicts itself.
    """
    check_unique(lab)
    refuse_foreign(observed, lab)
    refuse_storages(observed, lab)
    obsolete = _obsolete(observed, lab)
    removed = {guest.vmid for guest in obsolete}
    remaining = {vmid: guest for vmid, guest in observed.guests.items() if vmid not in removed}
    machines = (_guest(remaining.get(guest.vmid), guest, lab) for guest in lab.guests)
    steps = [
        Step("bridges", chain(_bridges(observed, lab))),
        *_removals(obsolete, "differs from the inventory"),
        Step("image", tuple(images.make(observed, lab, remaining))),
        Step("template", tuple(_templates(remaining, lab))),
        Step("machines", tuple(calls for calls in machines if calls)),
    ]
    return [step for step in steps if step.chains]


def plan_removal(observed: Observed, lab: Lab) -> list[Step]:
    """Return the steps that remove everything with this lab's mark: machines, template, bridges, images.

    Images come last, because a token may lack the right to remove them; the rest is then gone already.
    """
    ours = [guest for guest in observed.guests.values() if is_ours(guest, lab)]
    by_node = {name: tuple(bridges.remove(node, lab, name)) for name, node in observed.nodes.items()}
    steps = [
        *_removals(ours, "the lab is removed"),
        Step("zone", chain(zones.remove(observed, lab))),
        Step("bridges", tuple(calls for calls in by_node.values() if calls)),
        Step("image", tuple(images.remove(observed, lab))),
    ]
    return [step for step in steps if step.chains]


def refuse_foreign(observed: Observed, lab: Lab) -> None:
    """Refuse to touch a guest that has a requested VMID but is not this lab's, or that is locked.

    Raises:
        LabError: naming the guest, its node and what to do.
    """
    needed = "the lab needs VMIDs of guests that this token may not see"
    _refuse_hidden(observed, lab, needed, "otherwise choose another lab_first_vmid in the inventory")
    for vmid, name in _requested_vmids(lab).items():
        guest = observed.guests.get(vmid)
        if guest is None:
            continue
        if not is_ours(guest, lab):
            raise LabError(
                f"VMID {vmid} is needed for {name}, but belongs to {guest.name!r} on node {guest.node}, "
                f"which has no tag {lab.name!r}",
                "choose another lab_first_vmid in the inventory; dasklab never touches VMs without its tag",
            )
        if guest.lock:
            line = KINDS[guest.kind].unlock_line(vmid, guest.lock)
            raise LabError(
                f"VM {vmid} ({name}) is locked ({guest.lock}) and was not unlocked in time",
                f"wait for that operation; if none is running, as root on node {guest.node}: {line}",
            )


def refuse_rest(observed: Observed, lab: Lab) -> None:
    """Refuse to call a lab removed while guests have its VMIDs that may be its own.

    Raises:
        LabError: naming them and what to do.
    """
    left = f"guests that this token may not see remain on VMIDs of lab {lab.name!r}"
    _refuse_hidden(observed, lab, left, "otherwise they are somebody else's; all else of the lab is removed")


def _refuse_hidden(observed: Observed, lab: Lab, what: str, otherwise: str) -> None:
    """Refuse guests on the lab's VMIDs that the token may not see; name the lines that mend it."""
    if not observed.hidden_vmids:
        return
    names = _requested_vmids(lab)
    kinds = {guest.vmid: guest.kind for guest in lab.guests}
    nodes = lab.templates | {guest.vmid: guest.node for guest in lab.guests}
    lines = ["a creation that broke off (the node was restarted) leaves a locked guest that is in no pool"]
    for node in lab.nodes:
        vmids = [vmid for vmid in sorted(observed.hidden_vmids) if nodes[vmid] == node]
        guests = [(vmid, KINDS[kinds.get(vmid, "vm")]) for vmid in vmids]
        for vmid, in_api in guests[:1]:
            shows = f"where `{in_api.tool} config {vmid}` shows `lock: create` or `clone`"
            lines.append(f"{shows}, as root on node {node}:")
        lines += [in_api.unlock_line(vmid, "create") for vmid, in_api in guests]
    hidden = ", ".join(f"{vmid} ({names[vmid]})" for vmid in sorted(observed.hidden_vmids))
    raise LabError(f"{what}: {hidden}", "\n  ".join([*lines, otherwise]))


def _requested_vmids(lab: Lab) -> dict[int, str]:
    """Return VMID -> name. Also has templates for containers: the lab may get virtual machines later."""
    templates = {vmid: template_name(lab, vmid) for vmid in lab.templates}
    return templates | {guest.vmid: guest.name for guest in lab.guests}


def refuse_storages(observed: Observed, lab: Lab) -> None:
    """Refuse storages that a node lacks, or that do not allow what the lab stores there.

    Raises:
        LabError: naming the storages that exist, or the command that allows the content.
    """
    required = contents(lab.kinds, lab.storage, lab.image_storage)
    for node, (name, content) in product(lab.nodes, required):
        storages = observed.nodes[node].storages
        if name not in storages:
            existing = ", ".join(sorted(storages)) or "none that this token may see"
            raise LabError(f"node {node} has no storage {name!r}; it has {existing}")
        allowed = storages[name]
        if content not in allowed:
            types = ",".join(sorted({*allowed, content}))
            hint = f"as root on the node: pvesm set {quote(name)} --content {types}"
            raise LabError(f"storage {name!r} does not allow {content!r} content", hint)


def _obsolete(observed: Observed, lab: Lab) -> list[ObservedGuest]:
    """Return the lab's own guests that must go: not requested, or created from something else."""
    ours = [guest for guest in observed.guests.values() if is_ours(guest, lab)]
    # A guest is known by its name: in another place of the lab it would keep its disk and its host keys.
    requested = {vmid: ("vm", node, vms.name_of_template(lab)) for vmid, node in lab.templates.items()}
    requested |= {guest.vmid: (guest.kind, guest.node, guest.name) for guest in lab.guests}
    stale = _stale_nodes([guest for guest in ours if guest.kind == "vm"], lab) if "vm" in lab.kinds else set()
    return [
        guest
        for guest in ours
        if (guest.kind, guest.node, guest.name) != requested.get(guest.vmid)
        or (guest.node in stale if guest.kind == "vm" else _is_stale(guest, lab))
    ]


def _stale_nodes(ours: list[ObservedGuest], lab: Lab) -> set[str]:
    """Return nodes whose template is unfinished or of another image. Its linked clones must go, too."""
    description = vms.template_description(lab)
    return {
        guest.node
        for guest in ours
        if guest.is_template != (lab.templates.get(guest.vmid) == guest.node)
        or (guest.is_template and guest.description != description)
    }


def _is_stale(container: ObservedGuest, lab: Lab) -> bool:
    return container.description != containers.description(lab)


def _removals(guests: list[ObservedGuest], why: str) -> Iterator[Step]:
    """Yield the steps that remove guests. A template can be removed only after its linked clones."""
    for name, template in (("removal", False), ("template removal", True)):
        yield Step(name, tuple(_removal(guest, why) for guest in guests if guest.is_template == template))


def _removal(guest: ObservedGuest, why: str) -> Chain:
    path = f"/nodes/{guest.node}/{KINDS[guest.kind].path}/{guest.vmid}"
    stop = [Change("POST", f"{path}/status/stop", f"stop {guest.name}")] if guest.status == "running" else []
    delete = Change("DELETE", path, f"{guest.name}: {why}", {"purge": 1, "destroy-unreferenced-disks": 1})
    return (*stop, delete)


def _bridges(observed: Observed, lab: Lab) -> Iterator[Change]:
    """Yield the calls for the lab's own bridges: a bridge on one node, a vnet on several.

    Raises:
        LabError: the lab was on several nodes, and its vnet is in the way.
    """
    if len(lab.nodes) > 1:
        return zones.make(observed, lab)
    if any(zones.remove(observed, lab)):
        raise LabError(
            "this lab was on several nodes, and its vnet still exists",
            "to remove the lab and build it again: dasklab destroy, then dasklab up",
        )
    return bridges.make(observed.nodes[lab.nodes[0]], lab, lab.nodes[0])


def _templates(remaining: Mapping[int, ObservedGuest], lab: Lab) -> Iterator[Chain]:
    """Yield a chain for each node with virtual machines and without a template."""
    nodes = {guest.node for guest in lab.guests if guest.kind == "vm"}
    for vmid, node in lab.templates.items():
        if node in nodes and vmid not in remaining:
            yield tuple(vms.template(lab, node))


def _guest(present: ObservedGuest | None, guest: Guest, lab: Lab) -> Chain:
    return tuple(PLANNERS[guest.kind].make(guest, lab) if present is None else _adjust(present, guest, lab))


def _adjust(present: ObservedGuest, guest: Guest, lab: Lab) -> Iterator[Change]:
    """Yield the calls that change an existing guest's settings, with a stop if one needs it, and start it."""
    planner = PLANNERS[guest.kind]
    path = f"/nodes/{present.node}/{KINDS[guest.kind].path}/{guest.vmid}"
    have, want = present.config or {}, planner.config(guest, lab)
    params = {k: v for k, v in want.items() if _canonical(k, have.get(k)) != _canonical(k, v)}
    surplus = [key for key in net_keys(have) if key not in want]
    if surplus:
        params["delete"] = ",".join(surplus)
    live = not present.pending and all(planner.is_live(k, have.get(k), v) for k, v in params.items())
    running = present.status == "running"
    if running and not live:
        reason = ", ".join(sorted(params)) or "pending changes"
        yield Change("POST", f"{path}/status/stop", f"{guest.name}: needs a stop: {reason}")
    if params:
        yield Change("PUT", f"{path}/config", f"{guest.name}: {_differences(have, params)}", params)
    if not running or not live:
        yield Change("POST", f"{path}/status/start", f"start {guest.name}")


def _canonical(key: str, value: Value | None) -> object:
    """Return a form in which equal settings compare equal, however they are spelt."""
    if value is None:
        return None
    if net_keys([key]):
        return net_from_pve(str(value))
    if key == "sshkeys":
        return unquote(str(value)).strip()
    if key == "tags":
        return frozenset(str(value).replace(";", ",").split(","))
    if key == "description":
        return lab_note.without(str(value))
    return str(value).strip()


def _differences(have: Mapping[str, str], params: Mapping[str, Value]) -> str:
    changes = [
        k if k in {"sshkeys", "delete"} else f"{k} {_in_order(have.get(k, 'unset'), k, v)} -> {v}"
        for k, v in params.items()
    ]
    return "; ".join(changes)


def _in_order(have: str, key: str, want: Value) -> str:
    """Return a setting as the endpoint has it; a NIC's parts in the order of ``want``, for the eye."""
    if not net_keys([key]):
        return have
    order = [part.partition("=")[0] for part in str(want).split(",")]
    positions = {name: position for position, name in enumerate(order)}
    first = dict.fromkeys(MODELS["vm"], 0)  # a virtual machine's model is the name of the first part
    return ",".join(
        sorted(have.split(","), key=lambda part: (positions | first).get(part.partition("=")[0], len(order)))
    )


class GuestPlanner(Protocol):
    """How to plan guests of one kind."""

    def make(self, guest: Guest, lab: Lab) -> Iterator[Change]:
        """Yield the calls that create a guest and start it."""

    def config(self, guest: Guest, lab: Lab) -> dict[str, Value]:
        """Return the settings of a guest that may change later."""

    def is_live(self, key: str, have: str | None, want: Value) -> bool:
        """Return whether this setting can change while the guest runs."""


PLANNERS: Mapping[GuestKind, GuestPlanner] = {"vm": vms, "container": containers}

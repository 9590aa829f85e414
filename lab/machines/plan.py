"""Observed and wanted in, the list of API calls that leads from one to the other out.

Pure: nothing here talks to an endpoint. An empty plan is idempotence; printed, a plan is the dry run and
the diff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from lab.errors import LabError
from lab.machines import bridges, containers, vms
from lab.machines.change import Chain, Change, Step, Value, chain
from lab.machines.kinds import KINDS, contents
from lab.machines.observed import Observed, SeenGuest, is_ours
from lab.machines.topology import Guest, Image, Lab, check_unique
from lab.model.nic import GuestKind, net_from_pve, nets


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
        Step("bridges", chain(bridges.make(seen, lab))),
        *_removals(doomed, "no longer as the inventory has it"),
        Step("image", tuple(c for c in _images(seen, lab, left) if c)),
        Step("template", chain(_template(left, lab))),
        Step("machines", tuple(c for c in (_guest(left.get(g.vmid), g, lab) for g in lab.guests) if c)),
    ]
    return [step for step in steps if step.chains]


def plan_removal(seen: Observed, lab: Lab) -> list[Step]:
    """Return the steps that remove all that carries this lab's mark: machines, template, bridges, images.

    The images come last: a token may lack the right to remove them, and then the rest is gone already.
    """
    ours = [guest for guest in seen.guests.values() if is_ours(guest, lab)]
    path = f"/nodes/{lab.node}/storage/{lab.image_storage}/content/{lab.image_storage}"
    images = sorted((c, name) for name, c in seen.images.items() if name.startswith(lab.image_mark))
    steps = [
        *_removals(ours, "the lab is removed"),
        Step("bridges", chain(bridges.remove(seen, lab))),
        Step(
            "image", tuple((Change("DELETE", f"{path}:{c}/{name}", "the lab's image"),) for c, name in images)
        ),
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
    return {lab.template_vmid: "the template", **{guest.vmid: guest.name for guest in lab.guests}}


def refuse_storages(seen: Observed, lab: Lab) -> None:
    """Refuse storages that the node lacks, or that do not take what the lab puts there.

    Raises:
        LabError: naming what there is, and the line that mends it.
    """
    for name, content in contents(lab.kinds, lab.storage, lab.image_storage):
        if name not in seen.storages:
            known = ", ".join(sorted(seen.storages)) or "none that this token may see"
            raise LabError(f"node {lab.node} has no storage {name!r}; it has {known}")
        kept = seen.storages[name]
        if content not in kept:
            hint = f"as root on the node: pvesm set {name} --content {','.join(sorted({*kept, content}))}"
            raise LabError(f"storage {name!r} does not take {content!r} content", hint)


def _doomed(seen: Observed, lab: Lab) -> list[SeenGuest]:
    """What of the lab's own has to go: what is not wanted, or made of something else than now."""
    ours = [guest for guest in seen.guests.values() if is_ours(guest, lab)]
    kinds: dict[int, GuestKind] = {lab.template_vmid: "vm", **{g.vmid: g.kind for g in lab.guests}}
    stale = "vm" in lab.kinds and _template_is_stale([guest for guest in ours if guest.kind == "vm"], lab)
    return [
        guest
        for guest in ours
        if guest.kind != kinds.get(guest.vmid) or (stale if guest.kind == "vm" else _is_stale(guest, lab))
    ]


def _template_is_stale(ours: list[SeenGuest], lab: Lab) -> bool:
    """A template elsewhere, unfinished or made of another image: its linked clones go with it."""
    wanted = vms.template_description(lab)
    return any(guest.is_template != (guest.vmid == lab.template_vmid) for guest in ours) or any(
        guest.description != wanted for guest in ours if guest.is_template
    )


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


def _images(seen: Observed, lab: Lab, left: Mapping[int, SeenGuest]) -> Iterator[Chain]:
    """What the guests that are missing are made of, if it is not there."""
    if "vm" in lab.kinds and lab.template_vmid not in left:
        yield tuple(_image(seen, lab, lab.image, vms.IMAGES))
    if any(guest.vmid not in left for guest in lab.guests if guest.kind == "container"):
        yield tuple(_image(seen, lab, containers.image(lab), containers.IMAGES))


def _image(seen: Observed, lab: Lab, image: Image, content: str) -> Iterator[Change]:
    name = lab.name_of(image)
    if name in seen.images:
        return
    if content == vms.IMAGES and seen.version < (8, 4):
        raise LabError(
            f"Proxmox VE {seen.version[0]}.{seen.version[1]} takes no image by its API (8.4 and later do)",
            f"upgrade, or as root on the node put {name} where storage {lab.image_storage!r} keeps 'import'",
        )
    base = f"/nodes/{lab.node}/storage/{lab.image_storage}"
    params: dict[str, Value] = {"content": content, "filename": name}
    if image.file:
        yield Change("UPLOAD", f"{base}/upload", "what the guests are made of", params, image.file)
    else:
        params["url"] = image.url or ""
        if image.checksum and image.checksum_algorithm:
            params |= {"checksum": image.checksum, "checksum-algorithm": image.checksum_algorithm}
        yield Change("POST", f"{base}/download-url", "what the guests are made of", params)


def _template(left: Mapping[int, SeenGuest], lab: Lab) -> Iterator[Change]:
    if "vm" in lab.kinds and lab.template_vmid not in left:
        yield from vms.template(lab)


def _guest(seen: SeenGuest | None, guest: Guest, lab: Lab) -> Chain:
    return tuple(KINDS[guest.kind].make(guest, lab) if seen is None else _adjust(seen, guest, lab))


def _adjust(seen: SeenGuest, guest: Guest, lab: Lab) -> Iterator[Change]:
    kind = KINDS[guest.kind]
    path = f"/nodes/{seen.node}/{kind.API}/{guest.vmid}"
    have, want = seen.config or {}, kind.config(guest, lab)
    params = {k: v for k, v in want.items() if _canonical(k, have.get(k)) != _canonical(k, v)}
    surplus = [key for key in nets(have) if key not in want]
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
    if nets([key]):
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

"""Observed and wanted in, the list of API calls that leads from one to the other out.

Pure: nothing here talks to an endpoint. An empty plan is idempotence; printed, a plan is the dry run and
the diff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import quote, unquote

from lab.errors import LabError
from lab.machines import bridges
from lab.machines.change import Chain, Change, Step, Value, chain
from lab.machines.observed import Observed, SeenVm, is_ours, vm_mark
from lab.machines.topology import Lab, Vm, check_unique
from lab.model.nic import ipconfig_to_pve, net_from_pve, net_key, net_to_pve, nets

DISK = "virtio0"
SEED = "scsi1"


def plan(seen: Observed, lab: Lab) -> list[Step]:
    """Return the steps that make the endpoint carry ``lab`` and start it.

    Raises:
        LabError: something foreign is in the way, or the wish contradicts itself.
    """
    check_unique(lab)
    refuse_foreign(seen, lab)
    refuse_storages(seen, lab)
    doomed = _doomed(seen, lab)
    gone = {vm.vmid for vm in doomed}
    left = {vmid: vm for vmid, vm in seen.vms.items() if vmid not in gone}
    steps = [
        Step("bridges", chain(bridges.make(seen, lab))),
        *_removals(doomed, "no longer as the inventory has it"),
        Step("image", chain(_image(seen, lab, needed=lab.template_vmid not in left))),
        Step("template", chain(_template(left.get(lab.template_vmid), lab))),
        Step("machines", tuple(c for c in (_machine(left.get(vm.vmid), vm, lab) for vm in lab.vms) if c)),
    ]
    return [step for step in steps if step.chains]


def plan_removal(seen: Observed, lab: Lab) -> list[Step]:
    """Return the steps that remove all that carries this lab's mark: machines, template, bridges, images.

    The images come last: a token may lack the right to remove them, and then the rest is gone already.
    """
    ours = [vm for vm in seen.vms.values() if is_ours(vm, lab)]
    path = f"/nodes/{lab.node}/storage/{lab.image_storage}/content/{lab.image_storage}:import"
    images = sorted(name for name in seen.images if name.startswith(lab.image_mark))
    steps = [
        *_removals(ours, "the lab is removed"),
        Step("bridges", chain(bridges.remove(seen, lab))),
        Step("image", tuple((Change("DELETE", f"{path}/{name}", "the lab's image"),) for name in images)),
    ]
    return [step for step in steps if step.chains]


def refuse_foreign(seen: Observed, lab: Lab) -> None:
    """Refuse to touch a VM that stands on a wanted VMID and is not this lab's, or one that is locked.

    Raises:
        LabError: naming the VM, its node and what to do.
    """
    for vmid, name in [(lab.template_vmid, "the template"), *((vm.vmid, vm.name) for vm in lab.vms)]:
        vm = seen.vms.get(vmid)
        if vmid in seen.taken:
            raise LabError(
                f"VMID {vmid} is wanted for {name}, but a machine that this token may not see has it",
                "choose another lab_first_vmid in the inventory",
            )
        if vm is None:
            continue
        if not is_ours(vm, lab):
            raise LabError(
                f"VMID {vmid} is wanted for {name}, but belongs to {vm.name!r} on node {vm.node}, "
                f"which has no tag {lab.name!r}",
                "choose another lab_first_vmid in the inventory; the tool never touches VMs without its tag",
            )
        if vm.lock:
            raise LabError(
                f"VM {vmid} ({name}) is locked ({vm.lock}) and stayed so",
                f"let that operation finish; if none is running: 'qm unlock {vmid}' on node {vm.node}",
            )


def refuse_storages(seen: Observed, lab: Lab) -> None:
    """Refuse storages that the node lacks, or that do not take what the lab puts there.

    Raises:
        LabError: naming what there is, and the line that mends it.
    """
    for name, content in ((lab.storage, "images"), (lab.image_storage, "import")):
        if name not in seen.storages:
            known = ", ".join(sorted(seen.storages)) or "none that this token may see"
            raise LabError(f"node {lab.node} has no storage {name!r}; it has {known}")
        kept = seen.storages[name]
        if content not in kept:
            hint = f"as root on the node: pvesm set {name} --content {','.join(sorted({*kept, content}))}"
            raise LabError(f"storage {name!r} does not take {content!r} content", hint)


def _doomed(seen: Observed, lab: Lab) -> list[SeenVm]:
    """What of the lab's own has to go: machines that are not wanted, or all when the template has to go."""
    ours = [vm for vm in seen.vms.values() if is_ours(vm, lab)]
    if _template_is_stale(ours, lab):
        return ours
    wanted = {lab.template_vmid, *(vm.vmid for vm in lab.vms)}
    return [vm for vm in ours if vm.vmid not in wanted]


def _template_is_stale(ours: list[SeenVm], lab: Lab) -> bool:
    """A template elsewhere, unfinished or made of another image: its linked clones go with it."""
    return any(vm.is_template != (vm.vmid == lab.template_vmid) for vm in ours) or any(
        (vm.config or {}).get("description", "").strip() != _description(lab) for vm in ours if vm.is_template
    )


def _removals(doomed: list[SeenVm], why: str) -> Iterator[Step]:
    """Machines first: a template may only go after its linked clones."""
    for name, template in (("removal", False), ("template removal", True)):
        yield Step(name, tuple(_removal(vm, why) for vm in doomed if vm.is_template == template))


def _description(lab: Lab) -> str:
    return f"{vm_mark(lab)}image={lab.image_name}"


def _removal(vm: SeenVm, why: str) -> Chain:
    path = f"/nodes/{vm.node}/qemu/{vm.vmid}"
    stop = [Change("POST", f"{path}/status/stop", f"stop {vm.name}")] if vm.status == "running" else []
    delete = Change("DELETE", path, f"{vm.name}: {why}", {"purge": 1, "destroy-unreferenced-disks": 1})
    return (*stop, delete)


def _image(seen: Observed, lab: Lab, *, needed: bool) -> Iterator[Change]:
    image, name = lab.image, lab.image_name
    if not needed or name in seen.images:
        return
    if seen.version < (8, 4):
        raise LabError(
            f"Proxmox VE {seen.version[0]}.{seen.version[1]} takes no image by its API (8.4 and later do)",
            f"upgrade, or as root on the node put {name} where storage {lab.image_storage!r} keeps 'import'",
        )
    base = f"/nodes/{lab.node}/storage/{lab.image_storage}"
    params: dict[str, Value] = {"content": "import", "filename": name}
    if image.file:
        yield Change("UPLOAD", f"{base}/upload", "the guests' disk image", params, image.file)
    else:
        params["url"] = image.url or ""
        if image.checksum and image.checksum_algorithm:
            params |= {"checksum": image.checksum, "checksum-algorithm": image.checksum_algorithm}
        yield Change("POST", f"{base}/download-url", "the guests' disk image", params)


def _template(seen: SeenVm | None, lab: Lab) -> Iterator[Change]:
    if seen is not None:
        return
    path = f"/nodes/{lab.node}/qemu"
    vm = f"{path}/{lab.template_vmid}"
    yield Change("POST", path, "the machine that all others are linked clones of", _template_config(lab))
    if lab.disk_gb:
        yield Change("PUT", f"{vm}/resize", "room for packages", {"disk": DISK, "size": f"{lab.disk_gb}G"})
    # A token whose rights come from the pool may set tags only once the VM is in it.
    yield Change("PUT", f"{vm}/config", "the lab's tag", {"tags": lab.name})
    yield Change("POST", f"{vm}/template", "make it a template")


def _template_config(lab: Lab) -> dict[str, Value]:
    return {
        "vmid": lab.template_vmid,
        "name": f"{lab.name}-template",
        "description": _description(lab),
        "pool": lab.pool,
        "ostype": "l26",
        "cpu": lab.cpu,
        "balloon": 0,
        "scsihw": "virtio-scsi-pci",
        DISK: f"{lab.storage}:0,import-from={lab.image_storage}:import/{lab.image_name}",
        SEED: f"{lab.storage}:cloudinit",
        "boot": f"order={DISK}",
        "agent": "enabled=1",
        "serial0": "socket",
        "rng0": "source=/dev/urandom",
        "ciuser": "root",
        "ciupgrade": 0,
    }


def _machine(seen: SeenVm | None, vm: Vm, lab: Lab) -> Chain:
    return tuple(_clone(vm, lab) if seen is None else _adjust(seen, vm, lab))


def _clone(vm: Vm, lab: Lab) -> Iterator[Change]:
    params: dict[str, Value] = {"newid": vm.vmid, "name": vm.name, "pool": lab.pool}
    if vm.node != lab.node:
        params["target"] = vm.node
    path = f"/nodes/{vm.node}/qemu/{vm.vmid}"
    yield Change(
        "POST", f"/nodes/{lab.node}/qemu/{lab.template_vmid}/clone", f"{vm.name}: a linked clone", params
    )
    yield Change(
        "PUT", f"{path}/config", f"{vm.name}: its size, NICs, addresses and key", _vm_config(vm, lab)
    )
    yield Change("POST", f"{path}/status/start", f"start {vm.name}")


def _vm_config(vm: Vm, lab: Lab) -> dict[str, Value]:
    config: dict[str, Value] = {"name": vm.name, "cores": vm.cores, "memory": vm.memory_mb, "tags": lab.name}
    config["sshkeys"] = quote(lab.ssh_public_key.strip(), safe="")
    for index, nic in enumerate(vm.nics):
        config[net_key(index)] = net_to_pve(nic)
        if nic.address:
            config[f"ipconfig{index}"] = ipconfig_to_pve(nic)
    return config


def _adjust(seen: SeenVm, vm: Vm, lab: Lab) -> Iterator[Change]:
    path = f"/nodes/{seen.node}/qemu/{vm.vmid}"
    have, want = seen.config or {}, _vm_config(vm, lab)
    params = {k: v for k, v in want.items() if _canonical(k, have.get(k)) != _canonical(k, v)}
    surplus = [key for key in nets(have) if key not in want]
    if surplus:
        params["delete"] = ",".join(surplus)
    live = not seen.pending and all(_is_live(k, have.get(k), v) for k, v in params.items())
    running = seen.status == "running"
    if running and not live:
        yield Change(
            "POST",
            f"{path}/status/stop",
            f"{vm.name}: needs a stop: {', '.join(sorted(params)) or 'pending changes'}",
        )
    if params:
        yield Change("PUT", f"{path}/config", f"{vm.name}: {_differences(have, params)}", params)
    if not running or not live:
        yield Change("POST", f"{path}/status/start", f"start {vm.name}")


def _canonical(key: str, value: Value | None) -> object:
    """Return a form in which equal settings are equal, however they are spelt."""
    if value is None:
        return None
    if nets([key]):
        return net_from_pve(str(value))
    if key == "sshkeys":
        return unquote(str(value)).strip()
    if key == "tags":
        return frozenset(str(value).replace(";", ",").split(","))
    return str(value)


def _is_live(key: str, have: str | None, want: Value) -> bool:
    """Whether a running VM takes this change without a stop: tags, and a NIC's rate cap."""
    if nets([key]) and have is not None:
        before, after = net_from_pve(have), net_from_pve(str(want))
        return replace(before, rate_bytes=after.rate_bytes) == after
    return key == "tags"


def _differences(have: Mapping[str, str], params: Mapping[str, Value]) -> str:
    shown = [
        k if k in {"sshkeys", "delete"} else f"{k} {have.get(k, 'unset')} -> {v}" for k, v in params.items()
    ]
    return "; ".join(shown)

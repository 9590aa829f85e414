"""Observed and wanted in, the list of API calls that leads from one to the other out.

Pure: nothing here talks to an endpoint. An empty plan is idempotence; printed, a plan is
the dry run and the diff. Calls are grouped in steps: steps run one after another, the
chains of calls within a step side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import quote, unquote

from lab.errors import LabError
from lab.machines.topology import Lab, Vm, check_unique
from lab.model.nic import ipconfig_to_pve, net_from_pve, net_key, net_to_pve, nets

Method = Literal["POST", "PUT", "DELETE", "UPLOAD"]
Value = str | int
DISK = "virtio0"
SEED = "scsi1"


@dataclass(frozen=True)
class Change:
    """One API call and why it is made. ``path`` is below ``/api2/json``; UPLOAD is a POST with a file."""

    method: Method
    path: str
    why: str
    params: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = {k: ("..." if k == "sshkeys" else v) for k, v in self.params.items()}
        text = " ".join(f"{k}={v}" for k, v in shown.items())
        return f"{self.method} {self.path}{' ' + text if text else ''}  # {self.why}"


Chain = tuple[Change, ...]


@dataclass(frozen=True)
class Step:
    """Chains that may run side by side; within a chain calls run in order."""

    name: str
    chains: tuple[Chain, ...]


@dataclass(frozen=True)
class SeenVm:
    """A VM as the endpoint tells it. ``config`` includes pending values; ``None``: it may not be read."""

    vmid: int
    node: str
    name: str
    status: str
    tags: frozenset[str]
    config: Mapping[str, str] | None
    lock: str | None = None
    pending: bool = False


@dataclass(frozen=True)
class Observed:
    """What the endpoint has of what matters to one lab."""

    version: tuple[int, int]
    vms: Mapping[int, SeenVm]
    images: frozenset[str]
    bridges: Mapping[str, str]  # bridge -> its comment
    pending_network: str = ""


def plan(seen: Observed, lab: Lab) -> list[Step]:
    """Return the steps that make the endpoint carry ``lab`` and start it.

    Raises:
        LabError: something foreign is in the way, or the wish contradicts itself.
    """
    check_unique(lab)
    refuse_foreign(seen, lab)
    doomed = _surplus(seen, lab)
    rebuild = _template_is_stale(seen, lab)
    if rebuild:
        doomed = [vm for vm in seen.vms.values() if _ours(vm, lab)]
    left = {vmid: vm for vmid, vm in seen.vms.items() if vm not in doomed}
    steps = [
        Step("bridges", tuple(_chain(_new_bridges(seen, lab)))),
        Step(
            "removal",
            tuple(_removal(vm, "no longer in the inventory") for vm in doomed if _is_machine(vm, lab)),
        ),
        Step(
            "template removal",
            tuple(_removal(vm, "made of another image") for vm in doomed if not _is_machine(vm, lab)),
        ),
        Step("image", tuple(_chain(_image(seen, lab, needed=lab.template_vmid not in left)))),
        Step("template", tuple(_chain(_template(left.get(lab.template_vmid), lab)))),
        Step("machines", tuple(c for c in (_machine(left.get(vm.vmid), vm, lab) for vm in lab.vms) if c)),
    ]
    return [step for step in steps if step.chains]


def plan_removal(seen: Observed, lab: Lab) -> list[Step]:
    """Return the steps that remove all that carries this lab's mark: machines, template, image, bridges."""
    ours = [vm for vm in seen.vms.values() if _ours(vm, lab)]
    images = [lab.image.volume] if ours and lab.image.volume in seen.images else []
    bridges = [b for b in lab.bridges if seen.bridges.get(b) == _bridge_comment(lab)]
    path = f"/nodes/{lab.node}/storage/{lab.image_storage}/content/{lab.image_storage}:import"
    steps = [
        Step("machines", tuple(_removal(vm, "the lab is removed") for vm in ours if _is_machine(vm, lab))),
        Step(
            "template", tuple(_removal(vm, "the lab is removed") for vm in ours if not _is_machine(vm, lab))
        ),
        Step("image", tuple((Change("DELETE", f"{path}/{name}", "the lab's image"),) for name in images)),
        Step("bridges", tuple(_chain(_old_bridges(seen, lab, bridges)))),
    ]
    return [step for step in steps if step.chains]


def refuse_foreign(seen: Observed, lab: Lab) -> None:
    """Refuse to touch a VM that stands on a wanted VMID and is not this lab's, or one that is locked.

    Raises:
        LabError: naming the VM, its node and what to do.
    """
    for vmid, name in [(lab.template_vmid, "the template"), *((vm.vmid, vm.name) for vm in lab.vms)]:
        vm = seen.vms.get(vmid)
        if vm is None:
            continue
        if not _ours(vm, lab):
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


def render(steps: list[Step]) -> str:
    """Return a plan as people read it: one line per call, below its step."""
    lines: list[str] = []
    for step in steps:
        lines.append(f"{step.name}:")
        lines += [f"  {change}" for chain in step.chains for change in chain]
    return "\n".join(lines) + ("\n" if lines else "")


def _ours(vm: SeenVm, lab: Lab) -> bool:
    return lab.name in vm.tags or (vm.config or {}).get("description", "").startswith(_mark(lab))


def _is_machine(vm: SeenVm, lab: Lab) -> bool:
    return vm.vmid != lab.template_vmid


def _mark(lab: Lab) -> str:
    return f"lab={lab.name} "


def _surplus(seen: Observed, lab: Lab) -> list[SeenVm]:
    wanted = {lab.template_vmid, *(vm.vmid for vm in lab.vms)}
    return [vm for vm in seen.vms.values() if _ours(vm, lab) and vm.vmid not in wanted]


def _template_is_stale(seen: Observed, lab: Lab) -> bool:
    """A template that is unfinished or made of another image: its linked clones go with it."""
    vm = seen.vms.get(lab.template_vmid)
    if vm is None:
        return False
    config = vm.config or {}
    return config.get("description", "").strip() != _description(lab) or config.get("template") != "1"


def _description(lab: Lab) -> str:
    return f"{_mark(lab)}image={lab.image.volume}"


def _bridge_comment(lab: Lab) -> str:
    return f"bridge of lab {lab.name}"


def _chain(changes: Iterator[Change]) -> list[Chain]:
    chain = tuple(changes)
    return [chain] if chain else []


def _new_bridges(seen: Observed, lab: Lab) -> Iterator[Change]:
    missing = [b for b in lab.bridges if b not in seen.bridges]
    if missing:
        _refuse_pending(seen, lab)
        for name in missing:
            params: dict[str, Value] = {
                "iface": name,
                "type": "bridge",
                "autostart": 1,
                "comments": _bridge_comment(lab),
            }
            yield Change("POST", f"/nodes/{lab.node}/network", f"the lab's own bridge {name}", params)
        yield Change("PUT", f"/nodes/{lab.node}/network", "bring the bridge up")


def _old_bridges(seen: Observed, lab: Lab, bridges: list[str]) -> Iterator[Change]:
    if bridges:
        _refuse_pending(seen, lab)
        for name in bridges:
            yield Change("DELETE", f"/nodes/{lab.node}/network/{name}", f"the lab's own bridge {name}")
        yield Change("PUT", f"/nodes/{lab.node}/network", "take the bridge down")


def _refuse_pending(seen: Observed, lab: Lab) -> None:
    if seen.pending_network:
        raise LabError(
            f"node {lab.node} has network changes that nobody has applied yet; "
            "a reload would apply them together with the lab's bridge",
            "apply or revert them first (web interface: node > System > Network)",
        )


def _removal(vm: SeenVm, why: str) -> Chain:
    path = f"/nodes/{vm.node}/qemu/{vm.vmid}"
    stop = [Change("POST", f"{path}/status/stop", f"stop {vm.name}")] if vm.status == "running" else []
    delete = Change("DELETE", path, why, {"purge": 1, "destroy-unreferenced-disks": 1})
    return (*stop, delete)


def _image(seen: Observed, lab: Lab, *, needed: bool) -> Iterator[Change]:
    image, name = lab.image, lab.image.volume
    if not needed or name in seen.images:
        return
    if seen.version < (8, 4):
        raise LabError(
            f"Proxmox VE {seen.version[0]}.{seen.version[1]} takes no image by its API (8.4 and later do)",
            f"upgrade, or as root on the node put {name} where storage {lab.image_storage!r} keeps 'import'",
        )
    base = f"/nodes/{lab.node}/storage/{lab.image_storage}"
    if image.file:
        yield Change(
            "UPLOAD",
            f"{base}/upload",
            "the guests' disk image",
            {"content": "import", "filename": image.file},
        )
    else:
        params: dict[str, Value] = {"content": "import", "filename": name, "url": image.url or ""}
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
        DISK: f"{lab.storage}:0,import-from={lab.image_storage}:import/{lab.image.volume}",
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

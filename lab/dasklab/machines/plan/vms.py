"""Plan the API calls that create virtual machines: linked clones of one template. Pure.

See ``dasklab.machines.plan.lab_plan``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

from dasklab.machines.endpoint.change import Change, Value
from dasklab.machines.endpoint.guest_kinds import VM
from dasklab.machines.endpoint.observed import ownership_mark
from dasklab.machines.inventory.topology import Guest, Lab
from dasklab.model.settings.nic import ipconfig_to_pve, net_from_pve, net_key, net_keys, net_to_pve

DISK = "virtio0"
CLOUD_INIT_DISK = "scsi1"


def name_of_template(lab: Lab) -> str:
    """Return the name of a node's template."""
    return f"{lab.name}-template"


def template_description(lab: Lab) -> str:
    """Return what the template is made from. A template with another description is created again."""
    return f"{ownership_mark(lab)}image={lab.name_of(lab.image)}"


def template(lab: Lab, node: str) -> Iterator[Change]:
    """Yield the calls that create a node's template."""
    path, vmid = f"/nodes/{node}/{VM.path}", lab.template_of(node)
    vm = f"{path}/{vmid}"
    yield Change(
        "POST", path, "the machine that all others are linked clones of", _template_config(lab, vmid)
    )
    if lab.disk_gb:
        yield Change("PUT", f"{vm}/resize", "space for packages", {"disk": DISK, "size": f"{lab.disk_gb}G"})
    # A token whose rights come from the pool may set tags only once the VM is in it.
    yield Change("PUT", f"{vm}/config", "the lab's tag", {"tags": lab.name})
    yield Change("POST", f"{vm}/template", "make it a template")


def _template_config(lab: Lab, vmid: int) -> dict[str, Value]:
    image = lab.name_of(lab.image)
    return {
        "vmid": vmid,
        "name": name_of_template(lab),
        "description": template_description(lab),
        "pool": lab.pool,
        "ostype": "l26",
        "cpu": lab.cpu,
        "balloon": 0,
        "scsihw": "virtio-scsi-pci",
        DISK: f"{lab.storage}:0,import-from={lab.image_storage}:{VM.images}/{image}",
        CLOUD_INIT_DISK: f"{lab.storage}:cloudinit",
        "boot": f"order={DISK}",
        "agent": "enabled=1",
        "serial0": "socket",
        "rng0": "source=/dev/urandom",
        "ciuser": "root",
        "ciupgrade": 0,
    }


def make(guest: Guest, lab: Lab) -> Iterator[Change]:
    """Yield the calls that clone the template, configure the clone and start it."""
    params: dict[str, Value] = {"newid": guest.vmid, "name": guest.name, "pool": lab.pool}
    source = f"/nodes/{guest.node}/{VM.path}/{lab.template_of(guest.node)}"
    path = f"/nodes/{guest.node}/{VM.path}/{guest.vmid}"
    yield Change("POST", f"{source}/clone", f"{guest.name}: a linked clone", params)
    yield Change(
        "PUT", f"{path}/config", f"{guest.name}: its size, NICs, addresses and key", config(guest, lab)
    )
    yield Change("POST", f"{path}/status/start", f"start {guest.name}")


def config(guest: Guest, lab: Lab) -> dict[str, Value]:
    """Return a virtual machine's size, NICs, addresses and ssh key."""
    settings: dict[str, Value] = {
        "name": guest.name,
        "cores": guest.cores,
        "memory": guest.memory_mb,
        "tags": lab.name,
        "sshkeys": quote(lab.ssh_public_key.strip(), safe=""),
    }
    for index, nic in enumerate(guest.nics):
        settings[net_key(index)] = net_to_pve(nic)
        if nic.address:
            settings[f"ipconfig{index}"] = ipconfig_to_pve(nic)
    return settings


def is_live(key: str, have: str | None, want: Value) -> bool:
    """True for tags and for the rate cap of a NIC."""
    if net_keys([key]) and have is not None:
        before, after = net_from_pve(have), net_from_pve(str(want))
        return replace(before, rate_bytes=after.rate_bytes) == after
    return key == "tags"

"""The options of a VM: who may set which, their canonical form, and what a new VM gets by default."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from lab.minipve import process
from lab.minipve.access.permit import Permit
from lab.minipve.config import drives, nics, schema
from lab.minipve.config.formats import split_list
from lab.minipve.config.nics import Nic
from lab.minipve.errors import ApiError, denied
from lab.minipve.image import storage
from lab.minipve.machine import seed

_GROUPS = {
    "VM.Config.CPU": "cores cpu cpulimit cpuunits numa smp sockets vcpus",
    "VM.Config.Memory": "memory balloon shares allow-ksm",
    "VM.Config.HWType": "acpi audio0 hotplug kvm machine rng0 scsihw smbios1 tablet vga watchdog",
    "VM.Config.Options": "agent autostart bios description keyboard localtime migrate_downtime migrate_speed "
    "name onboot ostype protection reboot startdate startup tdf template",
    "VM.PowerMgmt": "freeze",
    "VM.Config.Disk": "boot bootdisk efidisk0 tpmstate0 vmstatestorage",
    "VM.Config.Cloudinit VM.Config.Network": "cicustom cipassword citype ciuser ciupgrade nameserver "
    "searchdomain sshkeys",
}
_PRIVILEGES = {option: privs.split() for privs, names in _GROUPS.items() for option in names.split()}
_ZONE = "/sdn/zones/localnetwork"
_PERL_PATH_ERROR = (
    "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651."
)


def check(permit: Permit, vmid: int, pool: str | None, names: Iterable[str]) -> None:
    """403 (or PVE's ``only root can set``) unless the caller may set all options ``names`` of the VM.

    Drives and serial ports depend on their value: see ``check_values``. ``tags`` are the callers' affair.
    """
    if permit.is_root:
        return
    for name in names:
        if drives.is_slot(name) or name == "tags" or re.fullmatch(r"(?:unused|serial)\d+", name):
            continue
        if privs := _privileges(name):
            permit.need_vm(vmid, pool, privs, any_of=True)
        else:
            raise ApiError(f"only root can set '{name}' config")
        if name == "startup":
            permit.need("/", ["Sys.Modify"])


def _privileges(name: str) -> list[str] | None:
    if re.fullmatch(r"net\d+", name):
        return ["VM.Config.Network"]
    if re.fullmatch(r"ipconfig\d+", name):
        return _PRIVILEGES["ciuser"]
    return _PRIVILEGES["cores"] if re.fullmatch(r"numa\d+", name) else _PRIVILEGES.get(name)


def check_values(
    permit: Permit, vmid: int, pool: str | None, options: Mapping[str, str], verb: str = "set"
) -> None:
    """The checks that depend on values: bridges, storages, serial ports; wrong drives whoever asks.

    ``verb`` is PVE's word for what is done to a real serial port: ``set`` at creation, else ``modify``.
    """
    for name, value in options.items():
        if re.fullmatch(r"net\d+", name):
            check_bridge(permit, nics.parse(value))
        elif drives.is_slot(name):
            _check_drive(permit, vmid, pool, name, drives.parse(name, value))
        elif re.fullmatch(r"serial\d+", name):
            if value != "socket" and not permit.is_root:
                raise ApiError(f"only root can {verb} '{name}' config for real devices")
            permit.need_vm(vmid, pool, ["VM.Config.HWType"])


def check_bridge(permit: Permit, nic: Nic) -> None:
    """403 without SDN.Use on the bridge (and VLAN) of a NIC."""
    if nic.bridge:
        tag = f"/{nic.tag}" if nic.tag else ""
        permit.need(f"{_ZONE}/{nic.bridge}{tag}", ["SDN.Use"])


def _check_drive(permit: Permit, vmid: int, pool: str | None, slot: str, drive: drives.Drive) -> None:
    volid = drive["file"]
    if volid.startswith("/"):
        raise ApiError(_PERL_PATH_ERROR if not permit.is_root else "absolute paths are not supported here")
    privs = ["VM.Config.Disk"]
    if drives.is_cdrom(drive):
        privs = ["VM.Config.CDROM", *(["VM.Config.Cloudinit"] if drives.is_cloudinit(drive) else [])]
    if pool is None:  # at creation PVE asks for none of them
        permit.need_vm(vmid, pool, privs)
    if drives.is_new(drive):
        storage.known(volid.partition(":")[0])
        permit.need(f"/storage/{volid.partition(':')[0]}", ["Datastore.AllocateSpace"])
        if source := drive.get("import-from"):
            _check_import(permit, slot, source)
    elif volid not in ("none", "cdrom"):
        check_volume(permit, volid, vmid)


def _check_import(permit: Permit, slot: str, source: str) -> None:
    if source.startswith("/"):
        raise ApiError(_PERL_PATH_ERROR if not permit.is_root else "absolute paths are not supported here")
    volume = storage.parse(source)
    if volume.content not in ("images", "import"):
        text = f"{source} has wrong type '{volume.content}' - needs to be 'images' or 'import'"
        raise ApiError("Parameter verification failed.", 400, {slot: text})
    check_volume(permit, source, None)


def check_volume(permit: Permit, volid: str, vmid: int | None) -> None:
    """403 unless the caller may read a volume: files need a look at the storage, disks rights on their VM."""
    volume = storage.parse(volid)
    path = f"/storage/{storage.NAME}"
    if volume.content in ("iso", "vztmpl", "import"):
        permit.need(path, ["Datastore.AllocateSpace", "Datastore.Audit"], any_of=True)
    elif volume.vmid is not None and volume.vmid != vmid and not permit.has(path, ["Datastore.Allocate"]):
        permit.need(f"/vms/{volume.vmid}", ["VM.Config.Disk"])


def check_tags(permit: Permit, vmid: int) -> None:
    """403 unless the caller may set tags: asked of the VM itself, never of the pool of a new VM."""
    if not permit.has(f"/vms/{vmid}", ["VM.Config.Options"]):
        raise denied(f"/vms/{vmid}, VM.Config.Options")


def normalise(given: Mapping[str, Any]) -> dict[str, str]:
    """The options as they are stored: NICs canonical and with a MAC, tags sorted, the rest as given."""
    options = {name: str(value) for name, value in given.items()}
    for name, value in options.items():
        if re.fullmatch(r"net\d+", name):
            options[name] = nics.completed(value)
        elif drives.is_slot(name):
            options[name] = drives.text(name, drives.parse(name, value))
        elif name == "tags":
            options[name] = ";".join(sorted({tag.lower() for tag in split_list(value)}))
    if "sshkeys" in options:
        seed.check_keys(options)
    return options


def renewed_identity(options: Mapping[str, str]) -> dict[str, str]:
    """What makes a clone another VM: its SMBIOS UUID, and its generation id if the source has one."""
    smbios = schema.parse_option("smbios1", options.get("smbios1", "")) | {"uuid": str(uuid.uuid4())}
    vmgenid = {"vmgenid": str(uuid.uuid4())} if "vmgenid" in options else {}
    return {"smbios1": schema.option_text("smbios1", smbios)} | vmgenid


def defaults(options: Mapping[str, str], qemu_version: str) -> dict[str, str]:
    """What PVE adds to a new VM."""
    identity = {"smbios1": f"uuid={uuid.uuid4()}", "vmgenid": str(uuid.uuid4())}
    meta = {"meta": f"creation-qemu={qemu_version},ctime={int(time.time())}"}
    return identity | meta | {"boot": drives.default_boot(options)}


def hash_password(password: str) -> str:
    """A crypt hash (SHA-256), unless it is one already."""
    if re.match(r"\$(?:5|6|y|2[aby])\$", password):
        return password
    return process.run(["openssl", "passwd", "-5", "-stdin"], stdin=password).strip()

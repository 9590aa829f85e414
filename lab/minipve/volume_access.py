"""May the caller use the volumes that a request names? Asked of every request, here and nowhere else.

The schema says which parameters name volumes, whatever the method: a drive and what it is made from, an
unused disk, a snippet, a volume in the content of a storage. The rules are those of PVE's
``check_volume_access`` but for one: ``Datastore.Allocate`` on a storage, which a lab needs to remove the
image that it has uploaded, opens no disk of another's VM here. Two labs may share an endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minipve.access.permit import Permit
from minipve.config import drives, schema, validate
from minipve.errors import ApiError, parameter_error
from minipve.image import storage
from minipve.node import Call

_FORMATS = {"pve-volume-id", "pve-volume-id-or-qm-path", "pve-volume-id-or-absolute-path"}
_MOUNT = re.compile(r"rootfs|mp\d+")
_PERL_PATH_ERROR = (
    "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651."
)


@dataclass(frozen=True)
class VolumeReference:
    """A volume that a request names: in which parameter, in which part of its property string."""

    parameter: str
    part: str
    volid: str


def check(call: Call, method: schema.Method) -> None:
    """403 (or PVE's text for a path or a wrong kind of volume) unless the caller may use all of them."""
    permit = call.permit
    vmid = call.vmid if "/content" not in method.path and "vmid" in call.params else None
    for named in volumes(method, call.params):
        if named.volid in ("none", "cdrom"):
            _empty(permit, named)
        elif named.part == "volume" and _MOUNT.fullmatch(named.parameter):
            _mount(call, named.volid, vmid)
        elif named.parameter == "ostemplate":
            _archive(call, named.volid)
        elif named.volid.startswith("/"):
            raise ApiError("absolute paths are not supported here" if permit.is_root else _PERL_PATH_ERROR)
        elif named.part == "file" and drives.is_new({"file": named.volid}):
            _new(permit, named.volid)
        elif named.part == "import-from":
            _source(call, named)
        else:
            if method.verb == "DELETE":  # that takes more, and first
                permit.need(f"/storage/{storage.NAME}", ["Datastore.Allocate"])
            _need(call, named.volid, vmid)
            _kind(named)


def volumes(method: schema.Method, given: dict[str, Any]) -> Iterator[VolumeReference]:
    """All volumes that the validated parameters of a call name."""
    for name, value in given.items():
        fmt = schema.property_format(method.properties[name])
        if fmt is not None:
            for part, text in validate.parse(fmt, str(value)).items():
                if fmt[part].get("format") in _FORMATS or (part == "volume" and _MOUNT.fullmatch(name)):
                    yield VolumeReference(name, part, text)
        elif method.properties[name].get("format") in _FORMATS:
            yield VolumeReference(name, "", str(value))
    if "ostemplate" in given:
        yield VolumeReference("ostemplate", "", str(given["ostemplate"]))
    if "/content" in method.path and "volume" in given:
        yield VolumeReference("volume", "", storage.full_id(given["storage"], given["volume"]))
    elif "/content" in method.path and "filename" in given:
        yield VolumeReference("filename", "", f"{given['storage']}:{given['vmid']}/{given['filename']}")


def _empty(permit: Permit, named: VolumeReference) -> None:
    if named.volid == "cdrom":  # the node's own drive
        permit.need("/", ["Sys.Console"])


def _kind(named: VolumeReference) -> None:
    """Whether a drive can hold such a volume."""
    content = storage.parse(named.volid).content
    if named.parameter.startswith("unused") and content != "images":
        raise ApiError(f"unable to use volume {named.volid} - content type needs to be 'images'")
    if named.part == "file" and content not in ("images", "iso"):
        raise parameter_error(**{named.parameter: "content type needs to be 'images' or 'iso'"})


def _archive(call: Call, volid: str) -> None:
    """What a container is made from."""
    if ":" not in volid:
        raise ApiError(_PERL_PATH_ERROR)
    content = storage.parse(volid).content
    if content != "vztmpl":
        raise ApiError(f"unable to use volume {volid} - content type needs to be 'vztmpl'")
    _need(call, volid, None)


def _mount(call: Call, volid: str, vmid: int | None) -> None:
    """What a container has for a tree or a mount point: a volume to be made, or one that is there."""
    if drives.is_new({"file": volid}):
        _new(call.permit, volid)
    elif ":" in volid:
        content = storage.parse(volid).content
        if content not in ("images", "rootdir"):
            raise ApiError(f"unable to use volume {volid} - content type needs to be 'rootdir'")
        _need(call, volid, vmid)
    elif not call.permit.is_root:
        raise ApiError(_PERL_PATH_ERROR)


def _new(permit: Permit, volid: str) -> None:
    """The caller's right to a storage comes first: who has none is not told which storages there are."""
    store = volid.partition(":")[0]
    permit.need(f"/storage/{store}", ["Datastore.AllocateSpace"])
    storage.check_exists(store)


def _source(call: Call, named: VolumeReference) -> None:
    """What a disk is made from: the disk of a VM that the caller may clone, or a file."""
    volume = storage.parse(named.volid)
    if volume.content not in ("images", "import"):
        text = f"{named.volid} has wrong type '{volume.content}' - needs to be 'images' or 'import'"
        raise parameter_error(**{named.parameter: text})
    if volume.vmid is not None:
        call.permit.need(f"/vms/{volume.vmid}", ["VM.Clone"])
    else:
        _need(call, named.volid, None)


def _need(call: Call, volid: str, vmid: int | None) -> None:
    """403 unless the caller may use a volume, for the VM ``vmid`` (which may use its own)."""
    volume, path = storage.parse(volid), f"/storage/{storage.NAME}"
    if volume.vmid is None:
        if not call.permit.has(path, ["Datastore.Allocate"]):
            call.permit.need(path, ["Datastore.AllocateSpace", "Datastore.Audit"], any_of=True)
    elif volume.vmid != vmid and not _is_orphan_for(call, volume.vmid):
        call.permit.need(path, ["Datastore.Audit"])
        call.permit.need(f"/vms/{volume.vmid}", ["VM.Config.Disk"])


def _is_orphan_for(call: Call, vmid: int) -> bool:
    """Whether a disk's VM is no more, and the caller is one who tidies the storage up."""
    return vmid not in call.node.vmids() and call.permit.has(
        f"/storage/{storage.NAME}", ["Datastore.Allocate"]
    )

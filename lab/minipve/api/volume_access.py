"""Check that the caller may use every volume that a request names. Every request passes this check.

The schema says which parameters name volumes: drives and their sources, unused disks, snippets, volumes in
the content of a storage. The rules are those of PVE's `check_volume_access`, with one exception. In PVE
``Datastore.Allocate`` on a storage gives access to the disks of all VMs. Here it does not, because a client
needs it to remove its own uploads, and several clients may share an endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minipve.access import permissions
from minipve.access.permissions import Permit
from minipve.base.errors import ApiError, parameter_error
from minipve.config import drives
from minipve.config.rules import schema, validate
from minipve.node.call import Call

_FORMATS = {"pve-volume-id", "pve-volume-id-or-qm-path", "pve-volume-id-or-absolute-path"}
_MOUNT = re.compile(r"rootfs|mp\d+")
_PERL_PATH_ERROR = (
    "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651."
)


@dataclass(frozen=True)
class VolumeReference:
    """A volume in a request: the parameter, the key within its property string, and the volume id."""

    parameter: str
    part: str
    volid: str


def check(call: Call, method: schema.Method) -> None:
    """Raise 403, or PVE's error for a path or a wrong content type, unless the caller may use all volumes."""
    permit = call.permit
    vmid = call.vmid if "/content" not in method.path and "vmid" in call.params else None
    for ref in volumes(method, call.params):
        if ref.volid in ("none", "cdrom"):
            _check_empty(permit, ref)
        elif ref.part == "volume" and _MOUNT.fullmatch(ref.parameter):
            _check_mount(call, ref.volid, vmid)
        elif ref.parameter == "ostemplate":
            _check_template(call, ref.volid)
        elif ref.volid.startswith("/"):
            raise ApiError("absolute paths are not supported here" if permit.is_root else _PERL_PATH_ERROR)
        elif ref.part == "file" and drives.is_new({"file": ref.volid}):
            _check_new(permit, ref.volid)
        elif ref.part == "import-from":
            _check_source(call, ref)
        else:
            if method.verb == "DELETE":  # that takes more, and first
                permit.need_right(permissions.REMOVED_VOLUME, storage=drives.STORAGE)
            _check_existing(call, ref.volid, vmid)
            _check_content(ref)


def volumes(method: schema.Method, params: dict[str, Any]) -> Iterator[VolumeReference]:
    """Yield all volumes in the validated parameters of a call."""
    for name, value in params.items():
        fmt = schema.property_format(method.properties[name])
        if fmt is not None:
            for part, text in validate.parse(fmt, str(value)).items():
                if fmt[part].get("format") in _FORMATS or (part == "volume" and _MOUNT.fullmatch(name)):
                    yield VolumeReference(name, part, text)
        elif method.properties[name].get("format") in _FORMATS:
            yield VolumeReference(name, "", str(value))
    if "ostemplate" in params:
        yield VolumeReference("ostemplate", "", str(params["ostemplate"]))
    if "/content" in method.path and "volume" in params:
        yield VolumeReference("volume", "", drives.full_id(params["storage"], params["volume"]))
    elif "/content" in method.path and "filename" in params:
        yield VolumeReference("filename", "", f"{params['storage']}:{params['vmid']}/{params['filename']}")


def _check_empty(permit: Permit, ref: VolumeReference) -> None:
    if ref.volid == "cdrom":  # the node's own drive
        permit.need_right(permissions.HOST_DRIVE)


def _check_content(ref: VolumeReference) -> None:
    """Raise an error unless the drive accepts this content type."""
    content = drives.parse_volume_id(ref.volid).content
    if ref.parameter.startswith("unused") and content != "images":
        raise ApiError(f"unable to use volume {ref.volid} - content type needs to be 'images'")
    if ref.part == "file" and content not in ("images", "iso"):
        raise parameter_error(**{ref.parameter: "content type needs to be 'images' or 'iso'"})


def _check_template(call: Call, volid: str) -> None:
    """Check the template of a new container."""
    if ":" not in volid:
        raise ApiError(_PERL_PATH_ERROR)
    content = drives.parse_volume_id(volid).content
    if content != "vztmpl":
        raise ApiError(f"unable to use volume {volid} - content type needs to be 'vztmpl'")
    _check_existing(call, volid, None)


def _check_mount(call: Call, volid: str, vmid: int | None) -> None:
    """Check the volume of a root file system or mount point: a new one, or an existing one."""
    if drives.is_new({"file": volid}):
        _check_new(call.permit, volid)
    elif ":" in volid:
        content = drives.parse_volume_id(volid).content
        if content not in ("images", "rootdir"):
            raise ApiError(f"unable to use volume {volid} - content type needs to be 'rootdir'")
        _check_existing(call, volid, vmid)
    elif not call.permit.is_root:
        raise ApiError(_PERL_PATH_ERROR)


def _check_new(permit: Permit, volid: str) -> None:
    """Check the permission first, so that others do not learn which storages exist."""
    store = volid.partition(":")[0]
    permit.need_right(permissions.DISK_SPACE, storage=store)
    drives.check_exists(store)


def _check_source(call: Call, ref: VolumeReference) -> None:
    """Check the source of an import: a disk of a VM that the caller may clone, or an uploaded file."""
    volume = drives.parse_volume_id(ref.volid)
    if volume.content not in ("images", "import"):
        text = f"{ref.volid} has wrong type '{volume.content}' - needs to be 'images' or 'import'"
        raise parameter_error(**{ref.parameter: text})
    if volume.vmid is not None:
        call.permit.need_right(permissions.IMPORTED_DISK, vmid=volume.vmid)
    else:
        _check_existing(call, ref.volid, None)


def _check_existing(call: Call, volid: str, vmid: int | None) -> None:
    """Raise 403 unless the caller may use a volume for the guest ``vmid``, which may use its own."""
    volume = drives.parse_volume_id(volid)
    if volume.vmid is None:
        call.permit.need_right(permissions.FILE, storage=drives.STORAGE)
    elif volume.vmid != vmid and not _is_orphan_for(call, volume.vmid):
        call.permit.need_right(permissions.OTHERS_STORAGE, storage=drives.STORAGE)
        call.permit.need_right(permissions.OTHERS_DISK, vmid=volume.vmid)


def _is_orphan_for(call: Call, vmid: int) -> bool:
    """Return whether the disk's VM no longer exists and the caller may clean up the storage."""
    return vmid not in call.node.vmids() and call.permit.has(
        f"/storage/{drives.STORAGE}", ["Datastore.Allocate"]
    )

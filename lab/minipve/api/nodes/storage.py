"""The storage ``local``: state, content, upload, download from a URL, allocation and removal of volumes."""

from __future__ import annotations

import hashlib
import ssl
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import URLError

from minipve.api.routing import route
from minipve.base.atomic import UNFINISHED
from minipve.base.errors import ApiError, parameter_error, text_of
from minipve.config import drives
from minipve.config.rules.validate import MISSING
from minipve.guests.container import lifecycle as containers
from minipve.guests.vm import summary
from minipve.node.call import Call
from minipve.node.tasks import Task
from minipve.storage import directory, qemu_img, untrusted

_BLOCK_BYTES = 2**20


@route("GET", "/storage")
def configured(call: Call) -> list[dict[str, Any]]:
    """Return the configured storages: only ``local``."""
    if not call.permit.has("/storage/local", ["Datastore.Audit", "Datastore.AllocateSpace"], any_of=True):
        return []
    return [_configuration(call)]


@route("GET", "/storage/{storage}")
def configuration(call: Call) -> dict[str, Any]:
    """Return the configuration of a storage."""
    drives.check_exists(call["storage"])
    return _configuration(call)


def _configuration(call: Call) -> dict[str, Any]:
    root = str(call.node.storage.root)
    return {"storage": drives.STORAGE, "type": "dir", "content": directory.CONTENT, "path": root}


@route("GET", "/nodes/{node}/storage")
def index(call: Call) -> list[dict[str, Any]]:
    """Return the storages with their usage."""
    if not call.permit.has("/storage/local", ["Datastore.Audit", "Datastore.AllocateSpace"], any_of=True):
        return []
    row = summary.storage_row(call.node)
    contents = call.get("content", "").split(",") if call.get("content") else []
    fits = set(contents) <= set(directory.CONTENT.split(","))
    if call.get("format"):
        row["formats"] = {"supported": ["qcow2"], "default": "qcow2"}
    return [row] if fits and call.get("storage") in (None, drives.STORAGE) else []


@route("GET", "/nodes/{node}/storage/{storage}/status")
def status(call: Call) -> dict[str, Any]:
    """Return the usage of a storage."""
    if call["storage"] != drives.STORAGE:
        raise parameter_error(storage="No such storage.")
    row = summary.storage_row(call.node)
    return {key: value for key, value in row.items() if key not in ("storage", "used_fraction")}


@route("GET", "/nodes/{node}/storage/{storage}/content")
def content(call: Call) -> list[dict[str, Any]]:
    """Return volumes. Disk images are listed only for VMs that the caller may see."""
    drives.check_exists(call["storage"])
    rows = call.node.storage.content(call.get("content"), call.get("vmid"))
    sees_all = call.permit.has("/storage/local", ["Datastore.Allocate"])
    return [
        r for r in rows if sees_all or "vmid" not in r or call.permit.has(f"/vms/{r['vmid']}", ["VM.Audit"])
    ]


@route("GET", "/nodes/{node}/storage/{storage}/content/{volume}")
def volume(call: Call) -> dict[str, Any]:
    """Return a volume's size and format."""
    volid = drives.full_id(call["storage"], call["volume"])
    facts = directory.image_facts(call.node.storage.existing(volid)) or {"virtual-size": 0, "actual-size": 0}
    parsed = drives.parse_volume_id(volid)
    archive = parsed.content == "vztmpl"  # PVE runs qemu-img, which counts whole sectors
    size = facts["virtual-size"]
    return {
        "path": str(call.node.storage.path(volid)),
        "size": (size + 511) // 512 * 512 if archive else size,
        "used": facts["actual-size"],
        "format": "raw" if archive else parsed.format,
    }


@route("DELETE", "/nodes/{node}/storage/{storage}/content/{volume}")
def remove(call: Call) -> str:
    """Delete a volume (task ``imgdel``)."""
    volid = drives.full_id(call["storage"], call["volume"])
    owner = drives.parse_volume_id(volid).vmid
    if owner is not None and call.node.vms.exists(owner) and _in_use(call, owner, volid):
        raise ApiError(f"unable to remove volume '{volid}': still used by VM {owner}")
    if owner is not None and call.node.containers.exists(owner):
        raise ApiError(f"unable to remove volume '{volid}': still used by CT {owner}")

    def work(task: Task) -> None:
        if not (file := call.node.storage.path(volid)).exists():
            task.log(f"disk image '{file}' does not exist")
        call.node.storage.remove(volid)
        containers.sweep(call.node)
        task.log(f"Removed volume '{volid}'")

    return call.start("imgdel", f"{owner}@{drives.STORAGE}" if owner else drives.STORAGE, work)


def _in_use(call: Call, vmid: int, volid: str) -> bool:
    """Return whether a VM uses the volume. A linked clone's volume id may contain its base or not."""
    config, path_of = call.node.vms.load(vmid), call.node.storage.path
    used = [
        volid for section in (config.options, config.pending) for _, volid in drives.volumes(section, vmid)
    ]
    return path_of(volid) in map(path_of, used)


@route("POST", "/nodes/{node}/storage/{storage}/content")
def allocate(call: Call) -> str:
    """Create an empty disk image for a VM. Returns its volume id."""
    drives.check_exists(call["storage"])
    stem, _, fmt = str(call["filename"]).rpartition(".")
    if fmt != "qcow2" or not stem.startswith(f"vm-{call.vmid}-"):
        raise ApiError(f"illegal name '{call['filename']}' - should be 'vm-{call.vmid}-*' in format qcow2")
    text = str(call["size"])
    size = drives.checked_size(drives.size_bytes(text) * (1 if text[-1] in "MG" else 1024))
    with call.node.vms.locked(call.vmid):
        volid = call.node.storage.free_name(call.vmid, name=stem)
        qemu_img.create(call.node.storage.path(volid), size)
    return volid


def _checksum(call: Call, file: Path, task: Task) -> None:
    if not (expected := call.get("checksum")):
        return
    with file.open("rb") as stream:
        actual = hashlib.file_digest(stream, call["checksum-algorithm"]).hexdigest()
    if actual != expected.lower():
        raise ApiError(f"checksum mismatch: got '{actual}' != expect '{expected}'")
    task.log("calculating checksum...OK, checksum verified")


def _inspect(call: Call, file: Path, task: Task) -> None:
    """Verify the checksum, and that an image does not refer to other files of this machine."""
    _checksum(call, file, task)
    name, kind = str(call["filename"]), str(call["content"])
    if kind == "iso":
        untrusted.check(file, untrusted.format_of(file))
    elif kind == "import" and not name.endswith(".ova"):
        untrusted.check(file, Path(name).suffix.removeprefix("."))


def _target(call: Call) -> Path:
    drives.check_exists(call["storage"])
    kind = str(call["content"])
    name = directory.upload_name(kind, call["filename"])
    if kind not in directory.CONTENT.split(","):
        raise ApiError(f"storage '{call['storage']}' does not support '{kind}' content")
    return call.node.storage.path(f"{drives.STORAGE}:{kind}/{name}")


@route("POST", "/nodes/{node}/storage/{storage}/upload")
def upload(call: Call) -> str:
    """Import an uploaded file (task ``imgcopy``). It replaces an existing one, as in PVE."""
    target = _target(call)
    if "tmpfilename" not in call.params:
        raise parameter_error(tmpfilename=MISSING)
    received = call.node.first.storage.upload_path(call["tmpfilename"])
    upload_file = received.with_suffix(".task")  # the server removes the original name after the call
    received.rename(upload_file)

    def work(task: Task) -> None:
        try:
            task.log(f"starting file import from: {call['tmpfilename']}")
            _inspect(call, upload_file, task)
            task.log(f"target node: {call.node.name}")
            task.log(f"target file: {target}")
            task.log(f"file size is: {upload_file.stat().st_size}")
            upload_file.replace(target)
        finally:
            upload_file.unlink(missing_ok=True)
        task.log("finished file import successfully")

    return call.start("imgcopy", "", work)


@route("POST", "/nodes/{node}/storage/{storage}/download-url")
def download(call: Call) -> str:
    """Download a file to the storage (task ``download``). An existing file is an error."""
    target = _target(call)
    if target.exists():
        raise ApiError(f"refusing to override existing file '{target}'")
    part = target.with_name(f"{UNFINISHED}{target.name}")

    def work(task: Task) -> None:
        try:
            task.log(f"downloading {call['url']} to {target}")
            _fetch(call["url"], part, bool(call.get("verify-certificates", 1)), task.checkpoint)
            _inspect(call, part, task)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        task.log(f"download of '{call['url']}' to '{target}' finished")

    return call.start("download", target.name, work)


def _fetch(url: str, target: Path, verify: bool, checkpoint: Callable[[], None]) -> None:
    context = ssl.create_default_context() if verify else ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(url, timeout=60, context=context) as answer, target.open("wb") as stream:
            _copy(answer, stream, checkpoint)
    except URLError as error:
        why = error.reason if isinstance(error.reason, OSError) else error
        raise ApiError(f"download failed: {text_of(why)}") from error
    except (HTTPException, ValueError) as error:
        raise ApiError(f"download failed: no HTTP answer from {url}") from error


def _copy(source: BinaryIO, target: BinaryIO, checkpoint: Callable[[], None]) -> None:
    while block := source.read(_BLOCK_BYTES):
        checkpoint()
        target.write(block)

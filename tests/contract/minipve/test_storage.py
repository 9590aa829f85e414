"""The storage: upload, download by URL, checksums, names, content, removal, and a full disk."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Allow, minipve, serve
from tests.contract.endpoint import Endpoint, refused
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A qcow2 image with 12 MiB of data, enough for proxmoxer to stream it."""
    directory = tmp_path_factory.mktemp("image")
    (directory / "raw").write_bytes(os.urandom(12 * 2**20))
    target = directory / "my image.qcow2"
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", directory / "raw", target]
    subprocess.run(command, check=True)
    return target


@pytest.fixture
def store(endpoint: Endpoint, imports: str, allow: Allow) -> Iterator[Any]:
    """The storage for images; uploads of the tests are removed."""
    allow("Datastore.Allocate", path=f"/storage/{imports}")
    storage = endpoint.api().nodes(endpoint.node).storage(imports)
    yield storage
    for row in storage.content.get(content="import"):
        if "my_image" in row["volid"]:
            endpoint.done(storage.content(row["volid"]).delete())


def test_storage_list_shows_formats_and_space(endpoint: Endpoint, disks: str) -> None:
    rows = endpoint.api().nodes(endpoint.node).storage.get(format=1)
    row = next(row for row in rows if row["storage"] == disks)
    assert (row["active"], row["enabled"]) == (1, 1)
    assert "images" in row["content"].split(",")
    assert row["avail"] < row["total"]
    assert "qcow2" in row["formats"]["supported"]
    assert row["formats"]["default"] in row["formats"]["supported"]


def test_upload_import_and_removal(
    endpoint: Endpoint, store: Any, disks: str, imports: str, image: Path, vmid: int
) -> None:
    with image.open("rb") as stream:
        log = endpoint.done(store.upload.post(content="import", filename=stream))
    assert "finished file import successfully" in log[-2]
    volid = f"{imports}:import/my_image.qcow2"
    row = next(row for row in store.content.get(content="import") if row["volid"] == volid)
    assert (row["format"], row["size"]) == ("qcow2", image.stat().st_size)
    endpoint.create(vmid, scsi0=f"{disks}:0,import-from={volid},format=qcow2,discard=on")
    disk = f"{disks}:{vmid}/vm-{vmid}-disk-0.qcow2"
    assert endpoint.vm(vmid).config.get()["scsi0"] == f"{disk},discard=on,size=12M"
    listed = {row["volid"] for row in store.content.get(vmid=vmid)}
    assert volid in listed  # the parameter vmid selects among disks only
    endpoint.done(store.content(volid).delete())
    assert volid not in {row["volid"] for row in store.content.get(content="import")}


@pytest.mark.parametrize(("checksum", "expected_status"), [("", "OK"), ("0" * 64, "checksum mismatch: got ")])
def test_upload_with_a_checksum(
    endpoint: Endpoint, store: Any, image: Path, checksum: str, expected_status: str
) -> None:
    """Send the fields in pveproxy's order. It closes a connection with another order."""
    expected = checksum or hashlib.sha256(image.read_bytes()).hexdigest()
    with image.open("rb") as stream:
        fields = {"content": "import", "checksum-algorithm": "sha256", "checksum": expected}
        upid = store.upload.post(filename=stream, **fields)
    assert endpoint.wait(upid)["exitstatus"].startswith(expected_status)


def test_upload_fields_in_another_order_are_refused(ours: Endpoint) -> None:
    files = {"checksum": (None, "00"), "content": (None, "iso"), "filename": ("a.iso", b"data")}
    answer = ours.request("POST", f"/nodes/{ours.node}/storage/local/upload", files=files)
    order = "content, checksum-algorithm, checksum, filename"
    assert answer.reason == f"upload failed - fields must come in the order {order}"


def test_import_of_a_missing_image_is_an_error(
    endpoint: Endpoint, disks: str, imports: str, vmid: int
) -> None:
    scsi0 = f"{disks}:0,import-from={imports}:import/nosuch.qcow2"
    upid = endpoint.api().nodes(endpoint.node).qemu.post(vmid=vmid, pool=endpoint.pool, scsi0=scsi0)
    text = rf"unable to create VM {vmid} - failed to stat '/\S+/import/nosuch\.qcow2'"
    assert re.fullmatch(text, endpoint.failed(upid))


def test_deleting_an_image_needs_datastore_allocate(ours: Endpoint) -> None:
    assert ours.state is not None
    (ours.state / "storage/import/kept.raw").write_bytes(b"data")
    root = ours.root()
    root.access.users.post(userid="keeper@pve", password="keeper-secret")
    secret = root.access.users("keeper@pve").token("keep").post(privsep=0)["value"]
    headers = {"Authorization": f"PVEAPIToken=keeper@pve!keep={secret}"}
    privileges = "Datastore.AllocateTemplate,Datastore.AllocateSpace,Datastore.Audit"
    root.access.roles.post(roleid="Keeping", privs=privileges)
    root.access.acl.put(path="/storage/local", users="keeper@pve", roles="Keeping")
    path = f"/nodes/{ours.node}/storage/local/content/local:import/kept.raw"
    answer = ours.request("DELETE", path, headers)
    assert (answer.status_code, answer.reason) == (
        403,
        "Permission check failed (/storage/local, Datastore.Allocate)",
    )
    ours.done(root.nodes(ours.node).storage("local").content("local:import/kept.raw").delete(), root)
    root.access.users("keeper@pve").delete()
    root.access.roles("Keeping").delete()


@pytest.mark.parametrize(
    ("content", "name", "errors"),
    [
        ("import", "x.img", {"filename": "invalid filename or wrong extension"}),
        ("iso", "x.qcow2", {"filename": "wrong file extension"}),
        ("iso", "..iso", {"filename": "a name that begins with a dot is not listed"}),
        ("iso", r"..\..\x.iso", {"filename": "a name that begins with a dot is not listed"}),
        ("vztmpl", ".unfinished-x.tar.gz", {"filename": "a name that begins with a dot is not listed"}),
        ("snippets", "x.yaml", {"content": "value 'snippets' does not have a value in the enumeration"}),
    ],
)
def test_invalid_upload_is_refused(
    endpoint: Endpoint, imports: str, content: str, name: str, errors: dict[str, str]
) -> None:
    path = f"/nodes/{endpoint.node}/storage/{imports}/upload"
    answer = endpoint.request("POST", path, data={"content": content}, files={"filename": (name, b"data")})
    assert answer.status_code == 400
    for key, text in errors.items():
        assert text in answer.json()["errors"][key]


def test_upload_without_privilege_is_refused_early(ours: Endpoint) -> None:
    root = ours.root()
    root.access.users.post(userid="uploader@pve", password="uploader-secret")
    secret = root.access.users("uploader@pve").token("up").post(privsep=0)["value"]
    path = f"/nodes/{ours.node}/storage/local/upload"
    headers = {"Authorization": f"PVEAPIToken=uploader@pve!up={secret}"}
    files = {"filename": ("a.iso", b"x" * 2**20)}
    answer = ours.request("POST", path, headers, data={"content": "iso"}, files=files)
    assert answer.status_code == 403
    assert answer.reason == "Permission check failed (/storage/local, Datastore.AllocateTemplate)"
    assert (answer.content, answer.headers.get("Content-Type", "")) == (b"", "")
    root.access.users("uploader@pve").delete()


def test_refused_upload_leaves_no_file(ours: Endpoint) -> None:
    assert ours.state is not None
    assert list((ours.state / "storage").glob(".tmp-*")) == []


def test_iso_cannot_be_imported_as_a_disk(endpoint: Endpoint, disks: str, vmid: int) -> None:
    post, iso = endpoint.api().nodes(endpoint.node).qemu.post, f"{disks}:iso/x.img"
    error = refused(post, vmid=vmid, pool=endpoint.pool, scsi0=f"{disks}:0,import-from={iso}")
    text = f"{iso} has wrong type 'iso' - needs to be 'images' or 'import'"
    assert error.errors == {"scsi0": text}


@pytest.fixture
def web(image: Path) -> Iterator[str]:
    """A web server with the image, on loopback."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(image.parent))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_failed_download_leaves_no_file(ours: Endpoint, web: str) -> None:
    """The endpoint has its own network, from which the host's loopback cannot be reached."""
    local = ours.api().nodes(ours.node).storage("local")
    upid = local("download-url").post(content="import", filename="d.qcow2", url=f"{web}/my%20image.qcow2")
    assert "Connection refused" in ours.failed(upid)
    assert ours.state is not None
    assert list((ours.state / "storage/import").glob("*d.qcow2*")) == []


@pytest.fixture
def full(real: bool, tmp_path: Path) -> Iterator[Endpoint]:
    """An endpoint whose state is on a file system of 100 MB."""
    if real or os.geteuid() != 0:
        pytest.skip("a full disk needs root to mount one, and an endpoint of its own")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100M", "tmpfs", tmp_path]).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        yield serve(tmp_path)
    finally:
        stopped = minipve("stop", state=tmp_path).returncode
        subprocess.run(["umount", tmp_path], check=True)
    assert stopped == 0


def test_full_disk_is_an_error_and_leaves_nothing(full: Endpoint, image: Path) -> None:
    assert full.state is not None
    filler = full.state / "storage/import/filler.raw"
    filler.write_bytes(b"\1" * 90 * 2**20)
    upid = (
        full.api()
        .nodes(full.node)
        .qemu.post(vmid=100, pool=full.pool, scsi0="local:0,import-from=local:import/filler.raw")
    )
    error = full.failed(upid)
    assert "No space left on device" in error or "no space left on device" in error, error
    assert full.api().nodes(full.node).qemu.get() == []
    assert full.api().nodes(full.node).storage("local").content.get(content="images") == []
    assert list((full.state / "storage/images").rglob("*.qcow2")) == []
    filler.unlink()
    full.create(100, scsi0="local:1")
    full.remove(100)


def test_task_ends_on_a_full_disk(full: Endpoint) -> None:
    assert full.state is not None
    full.create(100)
    full.done(full.vm(100).status.start.post())
    upid = full.vm(100).status.shutdown.post(timeout=2)  # there is no guest: it fails when the disk is full
    with (full.state / "filler").open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(b"\1" * 2**16)
    deadline = time.monotonic() + PATIENCE_S
    status = full.api().nodes(full.node).tasks(upid).status
    while (task := status.get())["status"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert task["exitstatus"] == "VM quit/powerdown failed - got timeout"
    assert "No space left on device" in refused(full.vm(100).config.put, onboot=1).content
    assert "No space left on device" in full.failed(full.vm(100).config.post(onboot=1))
    full.wait(full.vm(100).status.stop.post())
    assert full.vm(100).status.current.get()["status"] == "stopped"
    (full.state / "filler").unlink()
    full.done(full.vm(100).delete())

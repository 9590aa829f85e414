"""Attacks of a token on other pools of the same endpoint.

Each test repeats a real attack, and checks its target: another machine's disk, or a file of the host.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Allow
from tests.contract.endpoint import Endpoint, refused

BREAKS = ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@dataclass(frozen=True)
class Other:
    """Another lab's machine on the endpoint, in its own pool."""

    vmid: int
    volid: str
    disk: Path

    @property
    def safe(self) -> bool:
        return self.disk.exists()


@pytest.fixture
def other(ours: Endpoint, vmid: int) -> Iterator[Other]:
    root, theirs = ours.root(), vmid + 3
    root.pools.post(poolid="other")
    upid = root.nodes(ours.node).qemu.post(vmid=theirs, pool="other", memory=32, kvm=0, scsi0="local:0.01")
    ours.done(upid, root)
    volid = root.nodes(ours.node).qemu(theirs).config.get()["scsi0"].partition(",")[0]
    assert ours.state is not None
    disk = ours.state / f"storage/images/{theirs}/vm-{theirs}-disk-0.qcow2"
    yield Other(theirs, volid, disk)
    ours.done(root.nodes(ours.node).qemu(theirs).delete(), root)
    root.pools("other").delete()


def configuration(endpoint: Endpoint, vmid: int) -> str:
    assert endpoint.state is not None
    return (endpoint.state / f"etc/pve/qemu-server/{vmid}.conf").read_text()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("unused0", "{}"),
        ("scsi1", "{}"),
        ("virtio0", "{},discard=on"),
        ("ide2", "{},media=cdrom"),
        ("cdrom", "{}"),
        ("scsi1", "local:0,import-from={}"),
        ("cicustom", "user={}"),
    ],
)
@pytest.mark.parametrize("verb", ["PUT", "POST"])
def test_no_option_can_use_a_foreign_disk(
    ours: Endpoint, vmid: int, other: Other, verb: str, option: str, value: str
) -> None:
    ours.create(vmid)
    before = configuration(ours, vmid)
    answer = ours.request(
        verb, f"/nodes/{ours.node}/qemu/{vmid}/config", data={option: value.format(other.volid)}
    )
    assert (answer.status_code, configuration(ours, vmid)) == (403, before), answer.text
    assert f"/vms/{other.vmid}, VM." in answer.json()["message"]


@pytest.mark.parametrize("value", ["{}", "local:0,import-from={}"])
def test_new_vm_cannot_use_a_foreign_disk(ours: Endpoint, vmid: int, other: Other, value: str) -> None:
    post = ours.api().nodes(ours.node).qemu.post
    error = refused(post, vmid=vmid, pool=ours.pool, scsi0=value.format(other.volid))
    assert (error.status_code, f"/vms/{other.vmid}, VM." in error.content) == (403, True)


def test_other_spellings_of_a_foreign_disk_are_refused(ours: Endpoint, vmid: int, other: Other) -> None:
    ours.create(vmid)
    name = other.volid.rpartition("/")[2]
    spellings = [
        f"local:0{other.vmid}/{name}",
        f"local:{vmid}/base-{vmid}-disk-0.qcow2/{other.vmid}/{name}",
        f"local:{vmid}/../{other.vmid}/{name}",
        f"local:iso/../../images/{other.vmid}/{name}",
        f"{ours.state}/storage/images/{other.vmid}/{name}",
    ]
    for spelling in spellings:
        answer = ours.request(
            "PUT", f"/nodes/{ours.node}/qemu/{vmid}/config", data={"scsi1": spelling, "unused0": spelling}
        )
        assert answer.status_code in (400, 403, 500), spelling
        assert "scsi1" not in configuration(ours, vmid)


def test_storage_methods_refuse_a_foreign_disk(ours: Endpoint, vmid: int, other: Other) -> None:
    content = f"/nodes/{ours.node}/storage/local/content"
    name = other.volid.partition(":")[2]
    for verb, path in (("GET", other.volid), ("GET", name), ("DELETE", other.volid), ("DELETE", name)):
        answer = ours.request(verb, f"{content}/{path}")
        assert (answer.status_code, other.safe) == (403, True), (verb, path)
    clone = f"{vmid}/base-{vmid}-disk-0.qcow2/{name}"
    assert ours.request("DELETE", f"{content}/{clone}").status_code == 403
    given = {"vmid": other.vmid, "filename": f"vm-{other.vmid}-disk-9.qcow2", "size": "1M"}
    assert ours.request("POST", content, data=given).status_code == 403
    assert not other.disk.with_name(given["filename"]).exists()


def test_foreign_disk_in_a_slot_is_never_deleted(ours: Endpoint, vmid: int, other: Other) -> None:
    """PVE removes the reference, and the volume stays with its VM."""
    ours.create(vmid)
    for delete in ({"delete": "unused0"}, {"idlist": "unused0", "force": 1}):
        ours.root().nodes(ours.node).qemu(vmid).config.put(unused0=other.volid)
        path = "unlink" if "idlist" in delete else "config"
        answer = ours.request("PUT", f"/nodes/{ours.node}/qemu/{vmid}/{path}", data=delete)
        assert (answer.status_code, other.safe) == (200, True), answer.text
        assert "unused0" not in configuration(ours, vmid)
    ours.root().nodes(ours.node).qemu(vmid).config.put(scsi1=other.volid)
    ours.remove(vmid)
    assert other.safe


def test_vm_leaves_a_pool_only_with_rights_on_that_pool(ours: Endpoint, other: Other) -> None:
    root = ours.root()
    root.pools.post(poolid="bobs")
    root.access.users.post(userid="bob@pve")
    secret = root.access.users("bob@pve").token("tt").post(privsep=0)["value"]
    root.access.roles.post(roleid="Bobs", privs="Pool.Allocate,VM.Allocate")
    for path in ("/pool/bobs", f"/vms/{other.vmid}"):
        root.access.acl.put(path=path, users="bob@pve", roles="Bobs")
    headers = {"Authorization": f"PVEAPIToken=bob@pve!tt={secret}"}
    move = {"vms": other.vmid, "allow-move": 1}
    answer = ours.request("PUT", "/pools/bobs", headers, data=move)
    text = "update pools failed: 403 Permission check failed (/pool/other, Pool.Allocate)\n"
    assert (answer.status_code, answer.json()["message"]) == (500, text)
    assert [row["vmid"] for row in root.pools.get(poolid="other")[0]["members"]] == [other.vmid]
    root.access.acl.put(path="/pool/other", users="bob@pve", roles="Bobs")
    assert ours.request("PUT", "/pools/bobs", headers, data=move).status_code == 200
    root.pools.put(poolid="other", vms=str(other.vmid), **{"allow-move": 1})
    root.pools("bobs").delete()
    root.access.users("bob@pve").delete()
    root.access.roles("Bobs").delete()


@pytest.fixture
def iso(ours: Endpoint) -> Iterator[str]:
    local = ours.api().nodes(ours.node).storage("local")
    files = {"filename": ("attack.iso", b"an image" * 512)}
    upload = f"/nodes/{ours.node}/storage/local/upload"
    ours.done(ours.request("POST", upload, data={"content": "iso"}, files=files).json()["data"])
    yield "local:iso/attack.iso"
    ours.done(local.content("local:iso/attack.iso").delete())


def test_reverting_a_drive_deletes_nothing(ours: Endpoint, vmid: int, iso: str, allow: Allow) -> None:
    """It deletes neither an ISO nor a disk of which only an option was pending."""
    allow("VM.Config.CDROM")
    assert ours.state is not None
    ours.create(vmid, scsi0="local:0.01")
    ours.done(ours.vm(vmid).status.start.post())
    disk = ours.vm(vmid).config.get()["scsi0"].partition(",")[0]
    for revert in ("revert", "delete"):
        ours.vm(vmid).config.put(ide2=f"{iso},media=cdrom", scsi0=f"{disk},discard=on", scsi1="local:0.01")
        assert "ide2: local:iso" in configuration(ours, vmid).partition("[PENDING]")[2]
        ours.vm(vmid).config.put(**{revert: "ide2,scsi1" + (",scsi0" if revert == "revert" else "")})
        assert (ours.state / "storage/template/iso/attack.iso").exists()
        assert (ours.state / f"storage/images/{vmid}/vm-{vmid}-disk-0.qcow2").exists()
    ours.done(ours.vm(vmid).status.stop.post())
    ours.done(ours.vm(vmid).status.start.post())
    ours.done(ours.vm(vmid).status.stop.post())
    assert disk in ours.vm(vmid).config.get()["scsi0"]


@pytest.mark.parametrize("mark", BREAKS)
def test_values_with_line_breaks_are_refused(ours: Endpoint, vmid: int, other: Other, mark: str) -> None:
    """Otherwise QEMU would open the disk in the attacker's line at the next start."""
    ours.create(vmid)
    before = configuration(ours, vmid)
    value = f"a{mark}scsi1: {other.volid}{mark}args: -enable-something{mark}memory: x"
    for option in ("searchdomain", "ciuser"):
        error = refused(ours.vm(vmid).config.put, **{option: value})
        assert (error.status_code, configuration(ours, vmid)) == (500, before)
        assert error.content == f"unable to parse value of '{option}' - property contains a line feed"
    data = {"cipassword": value}  # of which only the hash is written, if anything
    ours.request("PUT", f"/nodes/{ours.node}/qemu/{vmid}/config", data=data)
    assert "scsi1" not in configuration(ours, vmid)
    post = ours.api().nodes(ours.node).qemu.post
    error = refused(post, vmid=vmid + 1, pool=ours.pool, memory=32, ciuser=value)
    assert "property contains a line feed" in error.content
    assert [row["vmid"] for row in ours.api().nodes(ours.node).qemu.get()] == [vmid]


def test_line_breaks_in_a_description_are_escaped(ours: Endpoint, vmid: int, other: Other) -> None:
    ours.create(vmid)
    for mark in BREAKS:
        text = f"a{mark}scsi1: {other.volid}{mark}[PENDING]{mark}memory: x"
        ours.vm(vmid).config.put(description=text)
        config = ours.vm(vmid).config.get()
        assert ("scsi1" not in config, config["memory"], config["description"]) == (True, "32", text)


def test_file_name_adds_no_option_to_the_command_line(ours: Endpoint, vmid: int) -> None:
    """A file name with commas remains one value of QEMU's option."""
    assert ours.state is not None
    ours.create(vmid)
    name = f"vm-{vmid}-a,file=/etc/passwd.qcow2"
    given = {"vmid": vmid, "filename": name, "size": "1M"}
    ours.request("POST", f"/nodes/{ours.node}/storage/local/content", data=given)
    answer = ours.request(
        "PUT", f"/nodes/{ours.node}/qemu/{vmid}/config", data={"scsi0": f"local:{vmid}/{name}"}
    )
    if answer.status_code == 200:
        ours.done(ours.vm(vmid).status.start.post())
        words = (ours.state / f"log/{vmid}.command").read_text().replace(",,", "")
        ours.done(ours.vm(vmid).status.stop.post())
        assert "file=/etc/passwd" not in words


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return a file of the host that only the endpoint may read."""
    file = tmp_path / "secret"
    file.write_bytes(b"the host's own secret".ljust(2**20, b"."))
    file.chmod(0o600)
    return file


def backed_by(file: Path, folder: Path) -> Path:
    image = folder / "evil.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", file, image], check=True)
    return image


def with_data_in(file: Path, folder: Path) -> Path:
    """Create an image whose header refers to an external data file."""
    image, data = folder / "evil.qcow2", folder / ("d" * len(str(file)))[: len(str(file))]
    option = f"data_file={data.name},data_file_raw=on"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-o", option, image, "1M"], check=True, cwd=folder
    )
    return image


def flat(file: Path, folder: Path) -> Path:
    sectors = file.stat().st_size // 512
    lines = ["# Disk DescriptorFile", "version=1", "CID=fffffffe", "parentCID=ffffffff"]
    lines += ['createType="monolithicFlat"', f'RW {sectors} FLAT "{file}" 0']
    (folder / "evil.vmdk").write_text("\n".join(lines) + "\n")
    return folder / "evil.vmdk"


def self_described(file: Path, folder: Path) -> Path:
    """Create a sparse VMDK of capacity 0 with an embedded descriptor that names the file."""
    text = flat(file, folder).read_bytes()
    header = struct.pack("<4sIIQQQQIQQQ", b"KDMV", 1, 3, 0, 128, 1, 4, 512, 0, 0, 128)
    (folder / "evil.vmdk").write_bytes(header.ljust(512, b"\0") + text.ljust(2048, b"\0"))
    return folder / "evil.vmdk"


@pytest.mark.parametrize("make", [backed_by, with_data_in, flat, self_described])
def test_images_cannot_refer_to_files_of_the_host(
    ours: Endpoint, vmid: int, secret: Path, tmp_path: Path, make: Any
) -> None:
    image: Path = make(secret, tmp_path)
    local = ours.api().nodes(ours.node).storage("local")
    with image.open("rb") as stream:
        error = ours.failed(local.upload.post(content="import", filename=stream))
    assert any(word in error for word in ("backing file not", "data-file", "extents", "not a VMDK")), error
    assert [row["volid"] for row in local.content.get(content="import") if "evil" in row["volid"]] == []
    assert ours.state is not None
    placed = ours.state / "storage/import" / image.name  # as if an administrator had copied it there
    placed.write_bytes(image.read_bytes())
    try:
        post = ours.api().nodes(ours.node).qemu.post
        upid = post(vmid=vmid, pool=ours.pool, scsi0=f"local:0,import-from=local:import/{image.name}")
        assert any(w in ours.failed(upid) for w in ("backing file not", "data-file", "extents", "not a VMDK"))
    finally:
        placed.unlink()
    assert not (ours.state / f"storage/images/{vmid}").exists()


def test_iso_with_a_backing_file_is_refused(ours: Endpoint, secret: Path, tmp_path: Path) -> None:
    upload = f"/nodes/{ours.node}/storage/local/upload"
    files = {"filename": ("evil.iso", backed_by(secret, tmp_path).read_bytes())}
    answer = ours.request("POST", upload, data={"content": "iso"}, files=files)
    assert "backing file not allowed" in ours.failed(answer.json()["data"])


@pytest.mark.parametrize("field", ["query", "form", "multipart"])
def test_caller_cannot_choose_the_temporary_file(ours: Endpoint, field: str) -> None:
    """Only the server chooses the path of the received file."""
    assert ours.state is not None
    path, name = f"/nodes/{ours.node}/storage/local/upload", "/var/tmp/pveupload-00"
    theirs = ours.state / "storage/.tmp-pveupload-00"
    theirs.write_bytes(b"another's upload")
    given = {"content": "iso", "filename": "a.iso", "tmpfilename": name}
    if field == "query":
        answer = ours.request("POST", path, params=given)
    elif field == "form":
        answer = ours.request("POST", path, data=given)
    else:
        fields = {key: (None, value) for key, value in given.items() if key != "filename"}
        answer = ours.request("POST", path, files=fields)
    assert answer.status_code >= 400
    assert theirs.read_bytes() == b"another's upload"
    theirs.unlink()


def test_removed_token_has_no_privileges(ours: Endpoint) -> None:
    """A request in flight once got the privileges of the token's owner."""
    root = ours.root()
    root.access.users.post(userid="late@pve", password="late-secret")
    secret = root.access.users("late@pve").token("tt").post(privsep=1)["value"]
    headers = {"Authorization": f"PVEAPIToken=late@pve!tt={secret}"}
    root.access.users("late@pve").token("tt").delete()
    assert ours.request("GET", "/version", headers).status_code == 401
    told = root.access.permissions.get(userid="late@pve!tt")
    assert told == {}
    root.access.users("late@pve").delete()


def test_damaged_configuration_does_not_break_lists(ours: Endpoint, vmid: int) -> None:
    """``memory: x`` once made every list fail with 500."""
    assert ours.state is not None
    ours.create(vmid)
    ours.create(vmid + 1)
    file = ours.state / f"etc/pve/qemu-server/{vmid + 1}.conf"
    file.write_text(file.read_text() + "memory: x\n")
    for path in (f"/nodes/{ours.node}/qemu", "/cluster/resources", f"/pools?poolid={ours.pool}"):
        answer = ours.request("GET", path)
        assert (answer.status_code, f'"vmid":{vmid}' in answer.text) == (200, True), path
    error = refused(ours.vm(vmid + 1).config.get)
    assert (
        error.content
        == f"{file} is damaged (line {file.read_text().count(chr(10))}): repair it, or remove the VM"
    )
    ours.done(ours.vm(vmid + 1).delete())
    assert not file.exists()

"""Templates and clones: linked and full, new identities, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.endpoint import Endpoint, refused


@pytest.fixture
def template(endpoint: Endpoint, vmid: int, disks: str) -> Iterator[int]:
    endpoint.create(
        vmid,
        name="base",
        description="what it is for",
        scsi0=f"{disks}:1,format=qcow2",
        ide2=f"{disks}:cloudinit,format=qcow2",
        net0=f"virtio,bridge={endpoint.bridge},rate=2",
        ipconfig0="ip=dhcp",
    )
    endpoint.vm(vmid).config.put(tags="lab")
    endpoint.done(endpoint.vm(vmid).template.post())
    yield vmid
    for clone in range(vmid + 1, vmid + 6):
        endpoint.remove(clone)


def test_five_linked_clones_in_parallel(endpoint: Endpoint, template: int, disks: str) -> None:
    source = endpoint.vm(template).config.get()
    assert source["template"] == 1
    assert f"base-{template}-disk-0" in source["scsi0"]
    new = range(template + 1, template + 6)
    post = endpoint.vm(template).clone.post
    upids = [post(newid=n, name=f"c{n}", pool=endpoint.pool) for n in new]
    assert all("create linked clone" in " ".join(endpoint.done(upid)) for upid in upids)
    clones: list[dict[str, Any]] = [endpoint.vm(n).config.get() for n in new]
    for n, clone in zip(new, clones, strict=True):
        base = f"{disks}:{template}/base-{template}-disk-0.qcow2"
        assert clone["scsi0"] == f"{base}/{n}/vm-{n}-disk-0.qcow2,size=1G"
        assert clone["ide2"] == f"{disks}:{n}/vm-{n}-cloudinit.qcow2,media=cdrom,size=4M"
        assert clone["description"].rstrip("\n") == "what it is for"
        assert (clone["name"], clone["tags"], clone["ipconfig0"]) == (f"c{n}", "lab", "ip=dhcp")
        assert clone["net0"].endswith(f",bridge={endpoint.bridge},rate=2")
        assert "template" not in clone
    for key in ("net0", "smbios1", "vmgenid", "ide2"):
        assert len({clone[key] for clone in [source, *clones]}) == 6, key


def test_template_with_clones_cannot_be_removed(endpoint: Endpoint, template: int, disks: str) -> None:
    endpoint.done(endpoint.vm(template).clone.post(newid=template + 1, pool=endpoint.pool))
    error = endpoint.failed(endpoint.vm(template).delete())
    base = f"{disks}:{template}/base-{template}-disk-0.qcow2"
    assert error == f"base volume '{base}' is still in use by linked cloned"
    assert endpoint.vm(template).config.get()["template"] == 1


def test_full_clone_has_its_own_disk(endpoint: Endpoint, template: int, disks: str) -> None:
    endpoint.done(endpoint.vm(template).clone.post(newid=template + 1, full=1, pool=endpoint.pool))
    clone = endpoint.vm(template + 1).config.get()
    assert clone["scsi0"] == f"{disks}:{template + 1}/vm-{template + 1}-disk-0.qcow2,size=1G"
    assert clone["name"] == "Copy-of-VM-base"


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        ({"storage": "local"}, 500, "parameter 'storage' not allowed for linked clones"),
        ({"format": "qcow2"}, 500, "parameter 'format' not allowed for linked clones"),
        ({"cores": 2}, 400, "Parameter verification failed."),
        ({"pool": "nosuch"}, 403, "Permission check failed"),
        ({"pool": None}, 403, "Permission check failed"),
    ],
)
def test_invalid_clone_is_refused(
    endpoint: Endpoint, template: int, options: dict[str, Any], status: int, text: str
) -> None:
    params = {"newid": template + 1, "pool": endpoint.pool} | options
    error = refused(endpoint.vm(template).clone.post, **params)
    assert (error.status_code, error.content) == (status, text)


def test_clone_to_an_existing_vmid_is_refused(endpoint: Endpoint, template: int) -> None:
    error = refused(endpoint.vm(template).clone.post, newid=template, pool=endpoint.pool)
    assert error.content == f"unable to create VM {template}: config file already exists"


def test_template_cannot_start_or_be_converted_again(endpoint: Endpoint, template: int) -> None:
    assert (
        endpoint.failed(endpoint.vm(template).status.start.post())
        == "you can't start a vm if it's a template"
    )
    error = refused(endpoint.vm(template).template.post)
    assert error.content == "you can't convert a template to a template"

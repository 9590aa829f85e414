"""VM configuration: canonical forms, validation, digest, locks, unused disks."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.conftest import Allow
from tests.contract.endpoint import Endpoint, refused

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0ws0kDzFQ7rz8DkWm2Sv1rO2cbRzFvkX0O2cD5Q0xY lab"


def test_options_are_stored_in_canonical_form(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(
        vmid,
        name="c1",
        net0=f"model=e1000,rate=0.5,bridge={endpoint.bridge},macaddr=02:da:5c:00:00:01",
        net1=f"virtio,bridge={endpoint.bridge}",
        sshkeys=quote(KEY, safe=""),
        ipconfig0="ip=10.0.0.5/24,gw=10.0.0.1",
        onboot=0,
        description="two\nlines: 50 %",
    )
    config = endpoint.vm(vmid).config.get()
    assert config["net0"] == f"e1000=02:da:5c:00:00:01,bridge={endpoint.bridge},rate=0.5"
    assert config["net1"].startswith("virtio=BC:24:11:") or ":" in config["net1"]
    assert config["boot"] == "order=net0"
    assert config["sshkeys"] == quote(KEY, safe="")
    assert config["description"].rstrip("\n") == "two\nlines: 50 %"
    assert (config["onboot"], config["cores"], config["memory"]) == (0, 1, "32")


def test_missing_mac_is_generated(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(vmid, net0=f"virtio=02:DA:5C:00:00:02,bridge={endpoint.bridge}")
    endpoint.vm(vmid).config.put(net0=f"virtio,bridge={endpoint.bridge}")
    assert "02:DA:5C:00:00:02" not in endpoint.vm(vmid).config.get()["net0"]


def test_outdated_digest_is_refused(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(vmid)
    digest = endpoint.vm(vmid).config.get()["digest"]
    endpoint.vm(vmid).config.put(cores=1, digest=digest, onboot=1)
    error = refused(endpoint.vm(vmid).config.put, cores=2, digest=digest)
    assert (error.status_code, "file change" in error.content) == (500, True)


@pytest.mark.parametrize(
    ("options", "errors"),
    [
        ({"net0": "virtio=01:00:00:00:00:00"}, {"net0": "unicast MAC address"}),
        ({"net0": "virtio,rate=-1"}, {"net0": "net0.rate: value must have a minimum value of 0"}),
        ({"net0": "virtio,e1000"}, {"net0": "duplicate key in comma-separated list property: model"}),
        ({"cores": 0}, {"cores": "value must have a minimum value of 1"}),
        (
            {"scsi0": "nonsense"},
            {"scsi0": "scsi0.file: invalid format - unable to parse volume ID 'nonsense'"},
        ),
        (
            {"agent": "enabled=perhaps"},
            {"agent": "agent.enabled: type check ('boolean') failed - got 'perhaps'"},
        ),
        ({"tags": "Ä"}, {"tags": "invalid format - invalid characters in tag"}),
        ({"scsihw": "floppy"}, {"scsihw": "does not have a value in the enumeration 'lsi, lsi53c810"}),
    ],
)
def test_refused_values(
    endpoint: Endpoint, vmid: int, options: dict[str, Any], errors: dict[str, str]
) -> None:
    post = endpoint.api().nodes(endpoint.node).qemu.post
    error = refused(post, vmid=vmid, pool=endpoint.pool, **options)
    assert error.status_code == 400
    assert set(error.errors) == set(errors)
    for name, text in errors.items():
        assert text in error.errors[name]


def test_invalid_public_keys_are_refused(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(vmid)
    error = refused(endpoint.vm(vmid).config.put, sshkeys=quote("not a key", safe=""))
    assert (error.status_code, error.content) == (500, "SSH public key validation error")


def test_passwords_are_hashed_and_hidden(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid)
    ours.vm(vmid).config.put(cipassword="secret")
    assert ours.vm(vmid).config.get()["cipassword"] == "**********"
    assert ours.state is not None
    text = (ours.state / f"etc/pve/qemu-server/{vmid}.conf").read_text()
    assert "secret" not in text
    assert "cipassword: $5$" in text


def test_removed_disk_becomes_unused_and_can_be_deleted(
    endpoint: Endpoint, vmid: int, disks: str, allow: Allow
) -> None:
    allow("VM.Config.CDROM", "VM.Config.Cloudinit")
    made = {"scsi0": f"{disks}:1,format=qcow2", "ide2": f"{disks}:cloudinit"}
    endpoint.create(vmid, scsihw="virtio-scsi-pci", **made)
    config = endpoint.vm(vmid).config
    assert config.get()["boot"] == "order=scsi0;ide2"
    volid = config.get()["scsi0"].partition(",")[0]
    config.put(delete="scsi0,ide2")
    assert config.get()["unused0"] == volid
    assert "ide2" not in config.get()
    assert [row["volid"] for row in _images(endpoint, disks, vmid)] == [volid]
    config.put(delete="unused0")
    assert _images(endpoint, disks, vmid) == []


def _images(endpoint: Endpoint, store: str, vmid: int) -> list[dict[str, Any]]:
    content = endpoint.api().nodes(endpoint.node).storage(store).content
    rows: list[dict[str, Any]] = content.get(vmid=vmid, content="images")
    return rows


def test_resize_grows_and_never_shrinks(endpoint: Endpoint, vmid: int, disks: str) -> None:
    endpoint.create(vmid, scsi0=f"{disks}:1,format=qcow2")
    vm = endpoint.vm(vmid)
    endpoint.done(vm.resize.put(disk="scsi0", size="+512M"))
    assert "size=1536M" in vm.config.get()["scsi0"]
    endpoint.done(vm.resize.put(disk="scsi0", size="2G"))
    assert _images(endpoint, disks, vmid)[0]["size"] == 2 * 2**30
    assert endpoint.failed(vm.resize.put(disk="scsi0", size="1G")) == "shrinking disks is not supported"


def test_one_of_several_clients_gets_a_vmid(endpoint: Endpoint, vmid: int) -> None:
    answers: list[Any] = []

    def create() -> None:
        answer = endpoint.request(
            "POST", f"/nodes/{endpoint.node}/qemu", data={"vmid": vmid, "pool": endpoint.pool, "memory": 32}
        )
        answers.append(answer)

    clients = [threading.Thread(target=create) for _ in range(6)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert sorted(answer.status_code for answer in answers) == [200, 500, 500, 500, 500, 500]
    for answer in answers:
        if answer.status_code == 200:
            endpoint.done(answer.json()["data"])
        else:
            assert answer.reason.startswith(f"unable to create VM {vmid} - ")


def test_concurrent_changes_of_a_vm_are_all_kept(endpoint: Endpoint, vmid: int) -> None:
    endpoint.create(vmid)

    def write(number: int) -> None:
        endpoint.vm(vmid).config.put(**{f"ipconfig{number}": f"ip=10.0.{number}.1/24"})

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    config = endpoint.vm(vmid).config.get()
    assert [config[f"ipconfig{n}"] for n in range(8)] == [f"ip=10.0.{n}.1/24" for n in range(8)]

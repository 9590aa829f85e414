"""Accepted options have an effect, others are refused: chipset, firmware tables, cicustom and more."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Allow
from tests.contract.endpoint import Endpoint, refused


def _words(endpoint: Endpoint, vmid: int) -> list[str]:
    """Return the command line of a running machine."""
    pid = endpoint.vm(vmid).status.current.get()["pid"]
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_q35_supports_all_devices_of_a_pc(ours: Endpoint, vmid: int, allow: Allow) -> None:
    drives = {"ide2": "local:cloudinit", "scsi0": "local:1", "sata1": "local:1", "virtio2": "local:1"}
    nics = {
        f"net{n}": f"{model},bridge={ours.bridge}" for n, model in enumerate(("virtio", "e1000", "rtl8139"))
    }
    ours.create(vmid, machine="q35", agent=1, scsihw="virtio-scsi-pci", **drives, **nics)
    ours.done(ours.vm(vmid).status.start.post())
    assert "type=q35" in _words(ours, vmid)
    status = ours.vm(vmid).status.current.get()
    assert (status["qmpstatus"], len(status["nics"])) == ("running", 3)


def test_smbios_values_are_decoded(ours: Endpoint, vmid: int) -> None:
    maker, serial = (base64.b64encode(text.encode()).decode() for text in ("Me, Myself", "=1="))
    ours.create(vmid)
    ours.vm(vmid).config.put(smbios1=f"base64=1,manufacturer={maker},serial={serial}")
    ours.done(ours.vm(vmid).status.start.post())
    assert "type=1,manufacturer=Me,, Myself,serial==1=" in _words(ours, vmid)


def test_clone_keeps_smbios_values(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid, smbios1="manufacturer=Me,uuid=11111111-2222-3333-4444-555555555555")
    ours.done(ours.vm(vmid).clone.post(newid=vmid + 1, pool=ours.pool))
    told = ours.vm(vmid + 1).config.get()["smbios1"]
    ours.remove(vmid + 1)
    assert "manufacturer=Me" in told
    assert "11111111" not in told


def test_cicustom_replaces_cloud_init_data(ours: Endpoint, vmid: int, allow: Allow) -> None:
    allow("VM.Config.Cloudinit")
    assert ours.state is not None
    (ours.state / "storage/snippets/mine.yaml").write_text("#cloud-config\nruncmd: [[touch, /mine]]\n")
    ours.create(vmid, ide2="local:cloudinit", cicustom="vendor=local:snippets/mine.yaml")
    ours.vm(vmid).cloudinit.put()
    assert b"touch, /mine" in (ours.state / f"seeds/vm-{vmid}-cloudinit.iso").read_bytes()
    ours.vm(vmid).config.put(cicustom="user=local:snippets/nosuch.yaml")
    error = ours.failed(ours.vm(vmid).status.start.post())
    assert error == "volume 'local:snippets/nosuch.yaml' does not exist"
    ours.vm(vmid).config.put(cicustom="user=local:iso/mine.iso")
    error = ours.failed(ours.vm(vmid).status.start.post())
    assert error == "local:iso/mine.iso is not in the snippets directory"


def test_kvm_0_means_emulation(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid, kvm=0)
    log = ours.done(ours.vm(vmid).status.start.post())
    assert log[-2:] == ["accelerator: tcg (kvm: 0)", "TASK OK"]


@pytest.mark.parametrize(
    "drive", ["local:1,format=raw", "local:0,import-from=local:import/a.qcow2,format=vmdk"]
)
def test_other_image_formats_are_refused_before_the_task(ours: Endpoint, vmid: int, drive: str) -> None:
    error = refused(ours.root().nodes(ours.node).qemu.post, vmid=vmid, scsi0=drive)
    assert (error.status_code, list(error.errors)) == (400, ["scsi0"])
    assert "is not supported here, only qcow2" in error.errors["scsi0"]


def test_virtio_nic_with_several_queues(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid, net0=f"virtio,bridge={ours.bridge},queues=2")
    ours.done(ours.vm(vmid).status.start.post())
    netdev = next(word for word in _words(ours, vmid) if word.startswith("type=tap"))
    assert "queues=2" in netdev


def test_vm_without_devices_has_an_empty_boot_order(ours: Endpoint, vmid: int) -> None:
    ours.create(vmid)
    assert ours.vm(vmid).config.get()["boot"] == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bios": "ovmf"}, "'ovmf' is not supported here, only seabios"),
        ({"machine": "pc-i440fx-9.0"}, "'pc-i440fx-9.0' is not supported here, only pc and q35"),
        ({"machine": "q35,viommu=intel"}, "'q35,viommu=intel' is not supported here, only pc and q35"),
        ({"efidisk0": "local:1"}, "not supported here"),
        ({"tpmstate0": "local:1,version=v2.0"}, "not supported here"),
        ({"args": "-S"}, "not supported here"),
        ({"usb0": "host=1234:5678"}, "not supported here"),
        ({"audio0": "device=AC97"}, "not supported here"),
        ({"watchdog": "i6300esb"}, "not supported here"),
        ({"citype": "configdrive2"}, "'configdrive2' is not supported here, only nocloud"),
    ],
)
def test_unsupported_options_are_refused(
    ours: Endpoint, vmid: int, options: dict[str, Any], said: str
) -> None:
    post = ours.root().nodes(ours.node).qemu.post
    error = refused(post, vmid=vmid, **options)
    assert (error.status_code, error.errors) == (400, dict.fromkeys(options, said))
    ours.create(vmid)
    error = refused(ours.root().nodes(ours.node).qemu(vmid).config.put, **options)
    assert (error.status_code, error.errors) == (400, dict.fromkeys(options, said))

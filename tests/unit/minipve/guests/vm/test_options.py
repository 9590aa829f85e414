"""A VM's options: privileges, canonical forms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from minipve.access.accounts import Access, grant
from minipve.access.permissions import Permit
from minipve.base.errors import ApiError
from minipve.config import drives, nics
from minipve.config.rules import schema
from minipve.guests.vm import options


@pytest.mark.parametrize(
    ("option", "privilege"),
    [
        ("cores", "VM.Config.CPU"), ("memory", "VM.Config.Memory"), ("net0", "VM.Config.Network"),
        ("rng0", "VM.Config.HWType"), ("scsihw", "VM.Config.HWType"), ("hotplug", "VM.Config.HWType"),
        ("boot", "VM.Config.Disk"), ("agent", "VM.Config.Options"), ("name", "VM.Config.Options"),
        ("ipconfig0", "VM.Config.Cloudinit"), ("cicustom", "VM.Config.Cloudinit"),
    ],
)  # fmt: skip
def test_option_requires_its_privilege(tmp_path: Path, option: str, privilege: str) -> None:
    access = Access(tmp_path / "access.json")
    permit = Permit(access, "a@pve")
    with access.change() as data:
        data["users"]["a@pve"] = {"enable": 1, "tokens": {}}
        data["roles"]["R"] = [privilege]
        data["roles"]["Other"] = ["VM.Audit"]
        grant(data, "/vms/100", "Other", "a@pve")
    with pytest.raises(ApiError, match=privilege):
        options.check(permit, 100, None, [option])
    with access.change() as data:
        grant(data, "/vms/100", "R", "a@pve")
    options.check(permit, 100, None, [option])


def test_root_only_options_equal_proxmox_ves() -> None:
    """All other options require a privilege."""
    properties = schema.method("PUT", "/nodes/{node}/qemu/{vmid}/config").properties
    names = {name for name in properties if not drives.is_slot(name)}
    special = re.compile(r"(?:efidisk|tpmstate|unused|serial|usb|hostpci|virtiofs)\d+|tags")
    root_only = {
        re.sub(r"\d+$", "", n) for n in names if not options._privileges(n) and not special.fullmatch(n)
    }
    control = {
        "background_delay",
        "bwlimit",
        "cdrom",
        "delete",
        "digest",
        "force",
        "node",
        "revert",
        "skiplock",
        "vmid",
    }
    assert root_only - control - {"import-working-storage"} == {
        "affinity", "amd-sev", "arch", "args", "hookscript", "hugepages", "intel-tdx", "ivshmem",
        "keephugepages", "lock", "parallel", "spice_enhancements", "vmgenid",
    }  # fmt: skip


def test_options_are_normalised() -> None:
    params = {
        "tags": "b;A,a",
        "cores": 2,
        "net0": "bridge=b,model=e1000",
        "scsi0": "ssd=1,file=local:32,discard=on",
    }
    stored = options.normalise(params)
    assert stored["tags"] == "a;b"
    assert stored["cores"] == "2"
    assert re.fullmatch(r"e1000=BC:24:11(:[0-9A-F]{2}){3},bridge=b", stored["net0"])
    assert stored["scsi0"] == "local:32,discard=on,ssd=1"
    assert nics.with_new_mac(stored["net0"]) != stored["net0"]


def test_password_is_hashed_once() -> None:
    assert options.hash_password("$5$salt$hash") == "$5$salt$hash"
    assert options.hash_password("secret").startswith("$5$")

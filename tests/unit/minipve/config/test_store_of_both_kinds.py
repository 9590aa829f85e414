"""VMs and containers share one range of VMIDs."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.errors import ApiError
from minipve.config.rules.schema import LXC
from minipve.config.store import GuestStore


def test_vmid_is_unique_across_both_kinds(tmp_path: Path) -> None:
    vms = GuestStore({"pve": tmp_path}, tmp_path / "lock", "pve")
    containers = GuestStore({"pve": tmp_path}, tmp_path / "lock", "pve", LXC)
    containers.create(121, "create")
    with pytest.raises(ApiError, match="CT 121 already exists on node 'pve'"):
        vms.create(121, "create")
    vms.create(122, "create")
    with pytest.raises(ApiError, match="VM 122 already exists on node 'pve'"):
        containers.create(122, "create")
    assert (vms.vmids(), containers.vmids()) == ([122], [121])
    with pytest.raises(ApiError, match=r"nodes/pve/lxc/122\.conf"):
        containers.load(122)

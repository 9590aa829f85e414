"""What this machine lacks for a lab with a local endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.machines import local_host
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory

from tests.unit.dasklab import checked_lab
from tests.unit.dasklab.checked_lab import NO_NETEM, NO_ROOT, OK


def test_only_the_kinds_of_the_lab_are_checked(tmp_path: Path) -> None:
    lab = Inventory(checked_lab.create(tmp_path, NO_NETEM))
    checked = local_host.require(lab)
    assert checked and checked.kernel_lacks == ("netem",)
    assert (tmp_path / "words").read_text() == "--kind container --json\n"


def test_problems_and_their_remedies_are_one_error(tmp_path: Path) -> None:
    tools = {"status": "missing", "text": "not installed: lxc-start (containers)"}
    answer = {**NO_ROOT, "findings": [*NO_ROOT["findings"], tools], "packages": ["lxc"]}
    with pytest.raises(LabError) as refused:
        local_host.require(Inventory(checked_lab.create(tmp_path, answer)))
    assert refused.value.message == (
        "this lab cannot run here: containers need root: use sudo; not installed: lxc-start (containers)"
    )
    assert refused.value.hint == "sudo apt install lxc"


def test_check_that_fails_is_named_in_one_line(tmp_path: Path) -> None:
    inventory = checked_lab.create(tmp_path, OK)
    (tmp_path / "check.json").write_text("minipve: not installed: aiohttp\n")
    with pytest.raises(LabError, match="could not be checked: minipve: not installed: aiohttp"):
        local_host.check(Inventory(inventory))


@pytest.mark.parametrize("example", ["existing", "proxmox"])
def test_lab_elsewhere_has_no_such_check(example: str) -> None:
    assert local_host.check(Inventory(DEFAULT.parent / "examples" / example / "hosts.yml")) is None


def test_the_endpoints_own_check_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real program: whatever this machine lacks, its answer has the form that is read here."""
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path / "state"))
    checked = local_host.check(Inventory(), ("container",))
    assert checked and any(line.text.startswith(("endpoint", "not installed")) for line in checked.findings)
    assert not (tmp_path / "state").exists()

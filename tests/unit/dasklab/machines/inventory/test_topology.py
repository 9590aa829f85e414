from __future__ import annotations

import pytest
from dasklab.errors import LabError
from dasklab.machines.inventory.topology import Guest, Lab, check_unique
from dasklab.model.forms.strict import validate
from dasklab.model.settings.nic import DRIVERS, NicOverride

from tests.unit.dasklab.samples import LAB, vm

MAC = "02:DA:5C:23:8D:01"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "e100", f"nics.0.model: 'e100' is not allowed; allowed: {', '.join(DRIVERS)}"),
        ("rate_mbit", -1, "nics.0.rate_mbit: should be greater than or equal to 0, got -1"),
        ("speed", 1, "nics.0.speed: unknown key; allowed: model, rate_mbit, mac, bridge, address, gateway"),
        ("mac", "03:00:00:00:00:01", "nics.0.mac: string should match pattern"),
    ],
)
def test_invalid_nic_is_reported_in_one_line(key: str, value: object, message: str) -> None:
    wrong = {**vm("worker-1", 9103), "nics": [{"mac": MAC, "bridge": "vmbr1", key: value}]}
    with pytest.raises(LabError) as caught:
        validate(Guest, wrong, "inventory: worker-1")
    assert caught.value.message.startswith(f"inventory: worker-1: {message}")
    assert "\n" not in caught.value.message


def test_override_changes_only_the_lab_link() -> None:
    changed = LAB.with_nics({"worker-1": NicOverride(model="rtl8139")})
    before, after = LAB.guests[1], changed.guests[1]
    assert after.nics[1].model == "rtl8139"
    assert after.nics[1].mac == before.nics[1].mac
    assert after.nics[0] == before.nics[0]
    assert changed.guests[0] == LAB.guests[0]


def test_override_for_an_unknown_machine_lists_the_existing_machines() -> None:
    with pytest.raises(LabError, match="no machine 'worker-9' in the inventory; there are client, worker-1"):
        LAB.with_nics({"worker-9": NicOverride(rate_mbit=10)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"template_vmid": 9101}, "client and the template have the same VMID 9101"),
        (
            {"guests": (LAB.guests[0], LAB.guests[1].model_copy(update={"nics": LAB.guests[0].nics}))},
            "client and worker-1 have the same MAC 02:DA:5C:23:8D:00",
        ),
    ],
)
def test_shared_vmid_or_mac_is_refused(changes: dict[str, object], message: str) -> None:
    lab: Lab = LAB.model_copy(update=changes)
    with pytest.raises(LabError, match=message):
        check_unique(lab)

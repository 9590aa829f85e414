"""A change of the inventory changes the plan, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.machines.endpoint.observed import Observed, ObservedBridge, ObservedNode
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory
from dasklab.machines.inventory.topology import Guest, check_unique
from dasklab.machines.plan.lab_plan import plan
from dasklab.model.experiments import experiment
from dasklab.model.forms.strict import validate
from dasklab.running.plan import trials
from dasklab.running.plan.setup import setup_of

from tests.unit.dasklab.samples import LAB


def machines(inventory: Inventory) -> tuple[Guest, ...]:
    return tuple(validate(Guest, inventory.value(n, "guest"), n) for n in inventory.hosts("lab"))


@pytest.fixture
def ten_workers(tmp_path: Path) -> Inventory:
    """The default inventory with worker-[1:10]."""
    (tmp_path / "hosts.yml").write_text(DEFAULT.read_text().replace("worker-[1:3]:", "worker-[1:10]:"))
    (tmp_path / "group_vars").symlink_to(DEFAULT.parent / "group_vars")
    return Inventory(tmp_path / "hosts.yml")


def test_default_lab_has_five_machines_and_one_captures() -> None:
    inventory = Inventory()
    guests = machines(inventory)
    assert [vm.name for vm in guests] == ["client", "scheduler", "worker-1", "worker-2", "worker-3"]
    assert [len(vm.nics) for vm in guests] == [3, 2, 2, 2, 2]
    assert inventory.value("worker-2", "scheduler_address") == str(guests[1].nics[1].address.ip)  # type: ignore[union-attr]


def test_ten_workers_are_ten_clones(ten_workers: Inventory) -> None:
    lab = LAB.model_copy(update={"guests": machines(ten_workers)})
    check_unique(lab)
    bridges = dict.fromkeys(("vmbr0", "vmbr1"), ObservedBridge(""))
    storages = {"local": frozenset({"images", "import"})}
    node = ObservedNode(bridges=bridges, storages=storages)
    observed = Observed(version=(9, 2), guests={}, nodes={"pve": node})
    clones = [
        c for s in plan(observed, lab) for chain in s.chains for c in chain if c.path.endswith("/clone")
    ]
    assert [c.params["newid"] for c in clones] == list(range(9101, 9113))
    assert [c.params["name"] for c in clones][-1] == "worker-10"


def test_addresses_stay_when_workers_are_added(ten_workers: Inventory) -> None:
    assert machines(ten_workers)[:5] == machines(Inventory())


@pytest.mark.parametrize("name", ["proxmox", "existing"])
def test_example_inventories_load(name: str) -> None:
    inventory = Inventory(DEFAULT.parent / "examples" / name / "hosts.yml")
    assert inventory.hosts("dask_workers") == ["worker-1", "worker-2", "worker-3"]
    assert inventory.value("client", "scheduler_address")
    assert inventory.has("client", "proxmox") is (name == "proxmox")


def test_example_of_many_workers_suits_its_experiment() -> None:
    lab = setup_of(Inventory(DEFAULT.parent / "examples" / "many" / "hosts.yml"))
    assert set(lab.guests.values()) == {"container"}
    planned = trials.plan(*experiment.load("many_workers", quick=True), lab)
    assert {trial.workers for trial in planned} == {3, 6, 12, 24, 48}


def test_missing_inventory_says_how_to_name_or_create_one(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="does not exist") as caught:
        Inventory(tmp_path / "nowhere.yml")
    assert "-i FOLDER/inventory/hosts.yml; to create one: dasklab init" in (caught.value.hint or "")


def test_inventory_without_a_lab_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("all: {hosts: {one: }}\n")
    with pytest.raises(LabError, match="has no hosts in group 'lab'"):
        Inventory(path)


def test_unknown_host_lists_the_existing_hosts() -> None:
    with pytest.raises(LabError, match=r"no host 'worker-9'.*there are client, scheduler, worker-1"):
        Inventory().value("worker-9", "guest")


@pytest.mark.parametrize("place", ["group_vars/all.yml", "host_vars/client/more"])
def test_aliases_that_grow_are_refused_before_ansible_resolves_them(tmp_path: Path, place: str) -> None:
    (tmp_path / "hosts.yml").write_text(DEFAULT.read_text())
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text("\n".join(lines))
    with pytest.raises(LabError, match=f"{place}, line 5: aliases make it more than 50,000 values$"):
        Inventory(tmp_path / "hosts.yml")

"""Misspelt variables and wrong values in an inventory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory
from dasklab.machines.inventory.variables import open_lab, prefixes, unknown, valid_names
from dasklab.model.settings.nic import MODELS

from tests.unit.dasklab.test_cli import run

EXAMPLES = DEFAULT.parent / "examples"
VM_MODELS = ", ".join(sorted(MODELS["vm"]))


def inventory(tmp_path: Path, host: str = "", everywhere: str = "") -> Path:
    """Return the default inventory with additional variables of worker-1 and of all hosts."""
    folder = shutil.copytree(DEFAULT.parent, tmp_path / "inventory")
    (folder / "host_vars").mkdir()
    (folder / "host_vars" / "worker-1.yml").write_text(host)
    with (folder / "group_vars" / "all.yml").open("a") as file:
        file.write(everywhere)
    return folder / "hosts.yml"


@pytest.mark.parametrize(
    ("variable", "line"),
    [
        ("lab_nic_modell: e1000", "unknown variable lab_nic_modell. Did you mean lab_nic_model?"),
        ("dask_worker_thread: 2", "unknown variable dask_worker_thread. Did you mean dask_worker_threads?"),
        ("vm_core: 2", "unknown variable vm_core. Did you mean vm_cores?"),
        (
            "managment_address: 10.0.0.9",
            "unknown variable managment_address. Did you mean management_address?",
        ),
        ("lab_zzz: 1", "unknown variable lab_zzz; names that begin with lab_ belong to the lab"),
        (
            "lab_guests: contianer",
            "lab_guests: 'contianer' is not allowed; allowed: vm, container. Did you mean container?",
        ),
        ("lab_nic_model: veth", f"lab_nic_model: a vm has no veth; allowed: {VM_MODELS}"),
        ("lab_nic_rate_mbit: fast", "lab_nic_rate_mbit: should be a valid number"),
        ("vm_cores: 0", "vm_cores: should be greater than or equal to 1, got 0"),
        ("dask_worker_threads: two", "dask_worker_threads: should be a valid integer"),
        ("dask_role: boss", "dask_role: 'boss' is not allowed; allowed: client, scheduler, worker"),
    ],
)
def test_mistake_names_variable_and_host(variable: str, line: str, tmp_path: Path) -> None:
    path = inventory(tmp_path, host=f"{variable}\n")
    with pytest.raises(LabError) as caught:
        open_lab(path)
    start = f"inventory {path}: worker-1: "
    assert caught.value.message.startswith(start)
    assert line in caught.value.message
    assert "\n" not in caught.value.message


def test_mistake_of_many_hosts_is_one_line(tmp_path: Path) -> None:
    path = inventory(tmp_path, everywhere="lab_nic_modell: e1000\n")
    with pytest.raises(LabError, match="client, scheduler, worker-1 and 2 more: unknown variable"):
        open_lab(path)


@pytest.mark.parametrize("key", ["tokn_secret: x", "storge: local"])
def test_misspelt_key_of_a_mapping_is_refused(key: str, tmp_path: Path) -> None:
    path = inventory(tmp_path)
    text = path.parent / "group_vars" / "all.yml"
    text.write_text(text.read_text().replace("  storage: local\n", f"  storage: local\n  {key}\n"))
    with pytest.raises(LabError, match=f"proxmox.{key.split(':')[0]}: unknown key; allowed: .*Did you mean"):
        open_lab(path)


def test_missing_variable_is_named(tmp_path: Path) -> None:
    path = inventory(tmp_path)
    path.write_text(path.read_text().replace("            vm_memory_mb: 2048\n", ""))
    with pytest.raises(LabError, match="worker-1, worker-2, worker-3: has no variable 'vm_memory_mb'"):
        open_lab(path)


def test_other_variables_are_accepted(tmp_path: Path) -> None:
    others = "ansible_user: root\nsite: home\nlabel: x\nvmware_host: y\nguests: 3\nenvironment_name: test\n"
    assert open_lab(inventory(tmp_path, host=others)).value("worker-1", "site") == "home"


@pytest.mark.parametrize(
    "path", [DEFAULT, EXAMPLES / "proxmox" / "cluster.yml", *EXAMPLES.glob("*/hosts.yml")], ids=str
)
def test_shipped_inventories_are_accepted(path: Path) -> None:
    open_lab(path)


def test_valid_names_include_roles_and_prefixes() -> None:
    assert {"lab_", "vm_", "endpoint_", "dask_", "proxmox_", "netem_"} <= set(prefixes())
    assert {"lab_nic_model", "dask_worker_threads", "guest_offloads", "lab_interface"} <= valid_names()
    assert list(unknown(valid_names())) == []


@pytest.mark.parametrize(
    "command", [("plan",), ("status",), ("up",), ("run", "baseline"), ("destroy", "--yes")]
)
def test_commands_refuse_a_wrong_value_before_anything_starts(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("subprocess.Popen", started)
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    path = inventory(tmp_path, host="lab_guests: contianer\n")
    result = run(*command, "-i", "inventory/hosts.yml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"dasklab: inventory {path}: worker-1: lab_guests: 'contianer'")
    assert [entry.name for entry in tmp_path.iterdir()] == ["inventory"]


INI = """
[lab:children]
dask_client
dask_scheduler
dask_workers
[virtual_machines:children]
lab
[hypervisors]
pve
[dask_client]
client dask_role=client vm_cores=1 vm_memory_mb=1024 lab_captures=true
[dask_scheduler]
scheduler dask_role=scheduler vm_cores=1 vm_memory_mb=1024
[dask_workers]
worker-[1:3] dask_role=worker vm_cores=1 vm_memory_mb=2048
"""


def ini(tmp_path: Path, text: str) -> Path:
    (tmp_path / "lab.ini").write_text(text)
    (tmp_path / "group_vars").symlink_to(DEFAULT.parent / "group_vars")
    return tmp_path / "lab.ini"


def test_ini_inventory_gives_the_same_lab(tmp_path: Path) -> None:
    lab, default = open_lab(ini(tmp_path, INI)), Inventory()
    assert [lab.value(host, "guest") for host in lab.hosts()] == [
        default.value(host, "guest") for host in default.hosts()
    ]


@pytest.mark.parametrize(
    ("group", "line"),
    [
        ("[hypervisors]\npve\n", "has no hosts in group 'hypervisors'"),
        ("[virtual_machines:children]\nlab\n", "not in group 'virtual_machines'"),
        ("dask_scheduler\ndask_workers\n[virtual", "has no hosts in group 'dask_scheduler'"),
    ],
)
def test_missing_group_is_named(group: str, line: str, tmp_path: Path) -> None:
    text = INI.replace(group, "[virtual" if group.endswith("[virtual") else "")
    if "dask_scheduler" in group:
        text = text.partition("[dask_scheduler]")[0] + "[dask_workers]" + text.partition("[dask_workers]")[2]
    with pytest.raises(LabError, match=r"inventory .*lab\.ini has") as caught:
        open_lab(ini(tmp_path, text))
    assert line in caught.value.message
    assert "\n" not in caught.value.message


def test_yaml_error_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all:\n  children: [\n")
    with pytest.raises(LabError, match=r"hosts\.yml, line 3: "):
        Inventory(tmp_path / "hosts.yml")

"""A wrong clock is corrected on machines that the lab created, and an error on machines that existed before.

The role's tasks run on local connections. A host's clock is a file that holds its offset in seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dasklab.paths import SHARE as ROOT

from tests.contract.dry_lab import HOSTS, DryLab, executable

PROGRAM = """#!{python}
import json, sys, time
from pathlib import Path
ahead, verb, *words = Path({folder!r}, "ahead"), *sys.argv[1:]
answer = {{"changes": [], "unsupported": []}}
if verb == "apply":
    answer["clock_s"] = time.time() + float(ahead.read_text())
elif Path({folder!r}, "container").exists():
    answer["unsupported"].append("the clock cannot be set here")
else:
    answer["changes"].append("clock")
    if "--check" not in words:
        ahead.write_text(str(float(ahead.read_text()) + float(words[0])))
print(json.dumps(answer))
"""


@pytest.fixture
def lab(tmp_path: Path) -> DryLab:
    """Hosts with correct clocks, and a playbook with the variables of ``configure.yml``."""
    lab = DryLab.make(tmp_path)
    for host in HOSTS:
        folder = str(tmp_path / host)
        executable(
            tmp_path / host / "bin" / "dasklab_host.py", PROGRAM.format(python=sys.executable, folder=folder)
        )
        set_ahead(lab, host, 0)
    [play, *_] = yaml.safe_load((ROOT / "playbooks" / "configure.yml").read_text())
    chosen = {key: value for key, value in play["vars"].items() if key.startswith("guest_")}
    chosen |= {"base_written": {"changed": False}}
    role = {"import_role": {"name": "guest", "tasks_from": "apply.yml"}}
    book = [{"hosts": "lab", "gather_facts": False, "vars": chosen, "tasks": [role]}]
    (tmp_path / "playbooks" / "clock.yml").write_text(yaml.safe_dump(book))
    return lab


def set_ahead(lab: DryLab, host: str, seconds: float) -> None:
    (lab.folder / host / "ahead").write_text(str(seconds))


def ahead(lab: DryLab, host: str) -> float:
    return float((lab.folder / host / "ahead").read_text())


def forget_endpoint(lab: DryLab) -> None:
    """Make the inventory one of machines that the lab did not create."""
    inventory = yaml.safe_load((lab.folder / "hosts.yml").read_text())
    del inventory["all"]["vars"]["proxmox"]
    (lab.folder / "hosts.yml").write_text(yaml.safe_dump(inventory))


def summary(result: subprocess.CompletedProcess[str]) -> str:
    return result.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("off_s", [3600.5, -86400.25])
def test_clock_of_a_machine_from_the_lab_is_corrected(lab: DryLab, off_s: float) -> None:
    set_ahead(lab, "worker-1", off_s)
    checked = lab.play("clock.yml", "--check")
    assert checked.returncode == 0, checked.stdout
    assert "Correct the clock by the controller's: changed 1" in checked.stdout
    assert ahead(lab, "worker-1") == off_s, "check mode must not change the clock"
    result = lab.play("clock.yml")
    assert result.returncode == 0, result.stdout
    assert "changed=1, failed=0" in summary(result)
    assert abs(ahead(lab, "worker-1")) < 2
    assert [ahead(lab, host) for host in HOSTS if host != "worker-1"] == [0] * 4
    assert "changed=0, failed=0" in summary(lab.play("clock.yml")), "the clock is correct in the second run"


def test_clock_within_the_tolerance_stays(lab: DryLab) -> None:
    set_ahead(lab, "worker-1", 4)
    assert "changed=0, failed=0" in summary(lab.play("clock.yml"))
    assert ahead(lab, "worker-1") == 4


def test_wrong_clock_of_an_existing_machine_is_an_error(lab: DryLab) -> None:
    forget_endpoint(lab)
    set_ahead(lab, "worker-1", 3600)
    result = lab.play("clock.yml")
    assert result.returncode != 0
    assert "differs from the controller's by more than 5 s: start a time service\n" in result.stdout
    assert ahead(lab, "worker-1") == 3600


def test_wrong_clock_of_a_container_is_an_error_of_its_node(lab: DryLab) -> None:
    (lab.folder / "worker-1" / "container").touch()
    set_ahead(lab, "worker-1", 3600)
    result = lab.play("clock.yml")
    assert result.returncode != 0
    assert "start a time service, of a container on its node" in result.stdout

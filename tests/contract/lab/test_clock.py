"""A wrong clock is corrected on machines that the lab created, and refused on machines that existed before.

The tasks of role ``guest`` run on local connections. A host's clock is a file with its offset in seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.contract.lab.dry_lab import HOSTS, DryLab, executable

TOLERANCE_S = 5  # the default of the role
PROGRAM = """#!{python}
import json, os, sys, time
from pathlib import Path
ahead = Path({folder!r}, "ahead")
arguments = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {{}}
answer = {{"changes": [], "unsupported": []}}
if sys.argv[1:3] == ["host", "clock"]:
    time_s = time.time() + float(ahead.read_text())
    answer = {{"time_s": time_s, "ahead_s": time_s - float(os.environ["DASKLAB_SENT_S"])}}
elif sys.argv[1:3] == ["host", "shift_clock"]:
    if Path({folder!r}, "container").exists():
        answer["unsupported"].append("the clock cannot be set")
    else:
        answer["changes"].append("clock")
        if not arguments["check"]:
            ahead.write_text(str(float(ahead.read_text()) - arguments["ahead_s"]))
print(json.dumps(answer))
"""


@pytest.fixture
def lab(tmp_path: Path) -> DryLab:
    """Hosts with correct clocks, and a playbook that corrects the clocks of created machines."""
    lab = DryLab.make(tmp_path)
    for host in HOSTS:
        program = PROGRAM.format(python=sys.executable, folder=str(tmp_path / host))
        executable(tmp_path / host / "dasklab-guest", program)
        set_ahead(lab, host, 0)
    tasks = tmp_path / "roles" / "guest" / "tasks" / "clock.yml"
    own = f'"{tmp_path}/{{{{ inventory_hostname }}}}/dasklab-guest"'
    tasks.write_text(tasks.read_text().replace("/opt/dasklab/bin/dasklab-guest", own))
    guest = "../roles/guest"  # not as a role: that would install the guest program on this machine
    play = {
        "hosts": "lab",
        "gather_facts": False,
        "vars_files": [f"{guest}/defaults/main.yml", f"{guest}/vars/main.yml"],
    }
    book = [{**play, "tasks": [{"import_tasks": f"{guest}/tasks/clock.yml"}]}]
    (tmp_path / "playbooks" / "clock.yml").write_text(yaml.safe_dump(book))
    return lab


def correct(lab: DryLab, *options: str) -> subprocess.CompletedProcess[str]:
    return lab.play("clock.yml", "-e", "guest_set_clock=true", *options)


def set_ahead(lab: DryLab, host: str, seconds: float) -> None:
    (lab.folder / host / "ahead").write_text(str(seconds))


def ahead(lab: DryLab, host: str) -> float:
    return float((lab.folder / host / "ahead").read_text())


def summary(process: subprocess.CompletedProcess[str]) -> str:
    return process.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("off_s", [3600.5, -86400.25])
def test_clock_of_a_machine_from_the_lab_is_corrected(lab: DryLab, off_s: float) -> None:
    set_ahead(lab, "worker-1", off_s)
    checked = correct(lab, "--check")
    assert checked.returncode == 0, checked.stdout
    assert "Shift clock: changed 1" in checked.stdout
    assert ahead(lab, "worker-1") == off_s, "check mode must not change the clock"
    process = correct(lab)
    assert process.returncode == 0, process.stdout
    assert "changed=1, failed=0" in summary(process)
    assert abs(ahead(lab, "worker-1")) < TOLERANCE_S
    assert [ahead(lab, host) for host in HOSTS if host != "worker-1"] == [0] * 4
    assert "changed=0, failed=0" in summary(correct(lab)), "the clock is correct in the second run"


def test_clock_within_the_tolerance_stays(lab: DryLab) -> None:
    set_ahead(lab, "worker-1", 4)
    assert "changed=0, failed=0" in summary(correct(lab))
    assert ahead(lab, "worker-1") == 4


def test_wrong_clock_of_an_existing_machine_is_refused(lab: DryLab) -> None:
    set_ahead(lab, "worker-1", 3600)
    process = lab.play("clock.yml")
    assert process.returncode != 0
    assert "differs from the controller's by more than 5 s. Start a time service" in process.stdout
    assert ahead(lab, "worker-1") == 3600


def test_wrong_clock_of_a_container_is_one_of_its_node(lab: DryLab) -> None:
    (lab.folder / "worker-1" / "container").touch()
    set_ahead(lab, "worker-1", 3600)
    process = correct(lab)
    assert process.returncode != 0
    assert "Start a time service (of a container, on its node)" in process.stdout

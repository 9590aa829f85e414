from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory
from dasklab.paths import PLAYBOOKS
from dasklab.paths import SHARE as ROOT
from dasklab.running.playbooks.playbook import command

from tests.contract.lab.dry_lab import TEMPLATES
from tests.waiting import PATIENCE_S

BOOK = """
- name: A play
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Say nothing
      ansible.builtin.command: "true"
      changed_when: false
    - name: Write a file
      ansible.builtin.copy: {content: "new\\n", dest: "DEST", mode: "0600"}
    - name: Say something
      ansible.builtin.debug: {msg: "one\\ntwo"}
"""
BROKEN = """
- name: A play
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Break
      ansible.builtin.fail: {msg: the cable is out}
"""


def play(
    text: str, folder: Path, *options: str, inventory: str = "localhost,"
) -> subprocess.CompletedProcess[str]:
    book = folder / "book.yml"
    book.write_text(text.replace("DEST", str(folder / "file")))
    here = ["-c", "local"] if inventory == "localhost," else []
    return run(str(book), folder, *here, *options, inventory=inventory)


def run(book: str, cache: Path, *options: str, inventory: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "DASKLAB_CACHE": str(cache),
        "HOME": str(cache),  # also the place of locks, as the user's own lab may be busy
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [str(program), "-i", inventory, book, *options]
    return subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


REPORT = """
- name: A play
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Tell
      ansible.builtin.copy:
        content: "{{ [groups['lab'] | map('extract', hostvars, 'guest'),
                      groups['lab'] | map('extract', hostvars, 'ansible_host'),
                      groups['lab'] | map('extract', hostvars, 'lab_address')] | to_json }}"
        dest: DEST
        mode: "0600"
"""
EXAMPLES = DEFAULT.parent / "examples"
WRITE_VARIABLE = """
- hosts: localhost
  gather_facts: false
  connection: local
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
    - ansible.builtin.copy: {content: "{{ variable | to_json }}", dest: "{{ file }}", mode: "0600"}
"""


def test_extra_vars_arrive_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "book.yml").write_text(WRITE_VARIABLE)
    file = tmp_path / "{{ 1+1 }}.json"
    texts = [*TEMPLATES, "[1]", "no", "", "\x07\x7f\r\n \U0001f600", "'\"\\"]
    variables = {"variable": {"a": [*texts, 1, 0.5, None, True]}, "file": str(file)}
    argv = command(str(tmp_path / "book.yml"), Path("localhost,"), variables, ["--diff"])
    subprocess.run(argv, check=True, cwd=tmp_path, env=os.environ | {"LC_ALL": "C.UTF-8"})
    assert json.loads(file.read_text()) == variables["variable"]


def test_each_task_is_one_line_with_its_states(tmp_path: Path) -> None:
    process = play(BOOK, tmp_path, "--diff")
    assert process.returncode == 0, process.stderr
    assert "Say nothing: ok 1" in process.stdout
    assert "Write a file: changed 1" in process.stdout
    assert "+new" in process.stdout
    assert "    one\n    two\n" in process.stdout
    assert "1 host, changed=1, failed=0" in process.stdout


def test_failure_is_printed_with_the_modules_message(tmp_path: Path) -> None:
    process = play(BROKEN, tmp_path)
    assert process.returncode != 0
    assert "FAILED  localhost: Break\n          the cable is out" in process.stdout
    assert "Traceback" not in process.stdout + process.stderr


def test_second_run_estimates_the_time_left(tmp_path: Path) -> None:
    past = {"book.yml": [["Say nothing", 1.0], ["Write a file", 60.0], ["Say something", 12.0]]}
    assert "left)" not in play(BOOK, tmp_path).stdout
    (tmp_path / "durations.json").write_text(json.dumps(past))
    assert "Say nothing: ok 1  (about 1:12 left)" in play(BOOK, tmp_path).stdout


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_ansible_and_its_children(signum: signal.Signals, tmp_path: Path) -> None:
    marker = tmp_path / "started"
    (tmp_path / "book.yml").write_text(BOOK.replace('"true"', f"sh -c 'touch {marker}; sleep 60'"))
    inventory = "pathlib.Path('localhost,'), options=['-c', 'local']"
    script = (
        "import pathlib, dasklab.running.playbooks.playbook as p, dasklab.terminal as t\n"
        "t.treat_sigterm_as_ctrl_c()\n"
        f"p.run({str(tmp_path / 'book.yml')!r}, {inventory}, quiet=True)\n"
    )
    argv = [sys.executable, "-c", script]
    child = subprocess.Popen(argv, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE)
    deadline = time.monotonic() + PATIENCE_S
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(child.pid, signum)
    _, complaint = child.communicate(timeout=60)
    assert b"KeyboardInterrupt" in complaint
    assert not [line for line in command_lines() if str(tmp_path) in line]


def command_lines() -> list[str]:
    """Return the command lines of all processes except pytest."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [line for line in lines if "pytest" not in line.split(" -")[0]]


@pytest.mark.parametrize("path", [DEFAULT, EXAMPLES / "proxmox" / "hosts.yml"], ids=["embedded", "proxmox"])
def test_playbook_and_python_see_the_same_machines(path: Path, tmp_path: Path) -> None:
    """The playbooks' group_vars apply to every inventory; they are linked for this play's folder."""
    (tmp_path / "group_vars").symlink_to(PLAYBOOKS / "group_vars")
    process = play(REPORT, tmp_path, inventory=str(path))
    assert process.returncode == 0, process.stdout
    inventory = Inventory(path)
    keys, hosts = ("guest", "ansible_host", "lab_address"), inventory.hosts()
    values = [[inventory.value(host, key) for host in hosts] for key in keys]
    assert json.loads((tmp_path / "file").read_text()) == values


@pytest.mark.parametrize("book", ["provision.yml", "bridge.yml"])
def test_lab_without_a_hypervisor_causes_no_warning(book: str, tmp_path: Path) -> None:
    path = str(EXAMPLES / "existing" / "hosts.yml")
    process = run(str(PLAYBOOKS / book), tmp_path, "--check", "--tags", "none", inventory=path)
    assert process.returncode == 0, process.stdout
    assert "Could not match" not in process.stdout + process.stderr


PERSIST = """
- name: A play
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Persist
      ansible.builtin.include_role: {name: proxmox_bridge, tasks_from: persist.yml}
      vars: {proxmox_bridge_name: vmbr77, proxmox_bridge_interfaces_file: DEST}
"""


def test_only_the_ageing_time_is_added_to_the_nodes_network_folder(tmp_path: Path) -> None:
    network = tmp_path / "network"
    network.mkdir()
    file = network / "interfaces"
    file.write_text("auto vmbr77\niface vmbr77 inet manual\n\tbridge-ports none\n")
    process = play(PERSIST.replace("DEST", str(file)), tmp_path)
    assert process.returncode == 0, process.stdout
    assert file.read_text().endswith("\tbridge-ports none\n\tbridge-ageing 0\n")
    assert [path.name for path in network.iterdir()] == ["interfaces"]

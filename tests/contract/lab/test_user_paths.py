"""Commands act on the lab that the user named, from any folder, and announce it first."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.paths import PLAYBOOKS
from dasklab.paths import SHARE as ROOT

BIN = Path(sys.executable).parent
VERBS = ["provision", "configure", "status", "destroy", "bridge", "reset", "trial", "lab"]


class User:
    """A user with an inventory of two workers in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inventory = shutil.copytree(DEFAULT.parent, folder / "inventory")
        hosts = inventory / "hosts.yml"
        hosts.write_text(hosts.read_text().replace("worker-[1:3]", "worker-[1:2]").replace("pve:", "mynode:"))
        self.state = folder / "state of mine"
        self.environment = os.environ | {
            "DASKLAB_STATE": str(self.state),
            "DASKLAB_CACHE": str(folder / "cache"),
            "PYTHONPATH": str(ROOT),
        }
        for name in ("DASKLAB_INVENTORY", "DASKLAB_RESULTS", "ANSIBLE_CONFIG"):
            self.environment.pop(name, None)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the project in the user's folder."""
        argv = [str(BIN / words[0]), *words[1:]]
        return subprocess.run(
            argv,
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    user = User(tmp_path_factory.mktemp("user"))
    yield user
    user.run("dasklab", "minipve", "stop", "--purge")


def planned(printed: str) -> list[str]:
    """Return the machines that a plan creates, each with its node."""
    return re.findall(r"POST /nodes/(mynode|pve)/\S+/clone newid=\d+ name=(\S+)", printed)


MINE = [("mynode", name) for name in ("client", "scheduler", "worker-1", "worker-2")]


@pytest.mark.parametrize("locale", ["C.UTF-8", "C", "POSIX"])
def test_relative_inventory_starts_at_the_working_directory_in_any_locale(user: User, locale: str) -> None:
    process = user.run("dasklab", "plan", "-i", "inventory/hosts.yml", LC_ALL=locale, LANG=locale)
    assert process.returncode == 0, process.stdout + process.stderr
    assert planned(process.stdout) == MINE
    by_environment = user.run("dasklab", "plan", DASKLAB_INVENTORY="inventory/hosts.yml")
    assert planned(by_environment.stdout) == MINE


def test_plan_and_status_start_no_endpoint(user: User) -> None:
    user.run("dasklab", "plan", "-i", "inventory/hosts.yml")
    assert user.run("dasklab", "up", "--check", "-i", "inventory/hosts.yml").returncode == 0
    assert user.run("dasklab", "status", "-i", "inventory/hosts.yml").returncode == 1
    by_hand = user.run("ansible-playbook", "-i", "inventory/hosts.yml", str(PLAYBOOKS / "status.yml"),
                       ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))  # fmt: skip
    assert "there is no lab yet" in by_hand.stdout
    assert not user.state.exists()


def test_destroy_of_a_lab_that_was_never_built_starts_no_endpoint(user: User) -> None:
    destroyed = user.run("dasklab", "destroy", "--yes", "-i", "inventory/hosts.yml")
    assert (destroyed.returncode, destroyed.stdout.splitlines()[-1]) == (
        0,
        "Lab 'dasklab' has nothing to remove.",
    )
    assert not user.state.exists()


def test_secrets_in_a_vault_are_read_by_commands_and_playbooks(tmp_path: Path) -> None:
    user = User(tmp_path)
    (tmp_path / "password").write_text("open\n")
    encrypted = user.run("ansible-vault", "encrypt_string", "--vault-password-file", "password", "vmbr987")
    tag, *lines = encrypted.stdout.strip().splitlines()
    variables = tmp_path / "inventory" / "group_vars" / "all.yml"
    value = "\n".join([tag, *(f"  {line.strip()}" for line in lines)])
    variables.write_text(re.sub("(?<=^lab_bridge: ).*", value, variables.read_text(), flags=re.MULTILINE))
    closed = user.run("dasklab", "inspect")
    assert (closed.returncode, "name a file with the vault's password" in closed.stderr) == (1, True)
    assert len(closed.stderr.splitlines()) == 2
    missing = user.run("dasklab", "inspect", ANSIBLE_VAULT_PASSWORD_FILE="nowhere")
    assert missing.stderr.startswith(f"dasklab: The vault password file {tmp_path}/nowhere was not found\n")
    assert "on vmbr987" in user.run("dasklab", "inspect", "--vault-password-file", "password").stdout
    by_environment = user.run("dasklab", "plan", ANSIBLE_VAULT_PASSWORD_FILE="password")
    assert "iface=vmbr987" in by_environment.stdout, by_environment.stdout + by_environment.stderr
    (tmp_path / "ansible.cfg").write_text("[defaults]\nvault_password_file = password\n")
    assert "on vmbr987" in user.run("dasklab", "inspect").stdout


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("inventory", ["nowhere.yml", "nolab.yml"])
def test_playbook_refuses_an_inventory_without_a_lab(user: User, inventory: str, verb: str) -> None:
    (user.folder / "nolab.yml").write_text("all: {hosts: {one: {ansible_connection: local}}}\n")
    config = str(ROOT / "ansible.cfg")
    process = user.run(
        "ansible-playbook", "-i", inventory, str(PLAYBOOKS / f"{verb}.yml"), ANSIBLE_CONFIG=config
    )
    assert process.returncode != 0
    assert "failed=0" not in process.stdout
    reason = "has no hosts in group 'lab'" if inventory == "nolab.yml" else f"inventory source {user.folder}"
    assert reason in process.stdout + process.stderr


# The following tests use the endpoint that the next test starts.


def lines(printed: str) -> list[str]:
    """Return the API calls of a printed plan."""
    return re.findall(r"^  (?:POST|PUT|UPLOAD|DELETE) .*", printed, re.MULTILINE)


def test_plan_without_an_endpoint_equals_the_plan_on_a_new_one(user: User) -> None:
    before = user.run("dasklab", "plan", "-i", "inventory/hosts.yml")
    assert "this is the plan for a new one" in before.stderr
    calls = json.loads(user.run("dasklab", "plan", "-i", "inventory/hosts.yml", "--json").stdout)
    assert [f"{call['method']} {call['path']}" for call in calls] == [
        " ".join(line.split()[:2]) for line in lines(before.stdout)
    ]
    start = ["-m", "dasklab.machines.local_endpoint", "--lab", "dasklab", "--state", str(user.state)]
    started = user.run("python", *start, "--management", "10.77.0.1/24")
    assert started.returncode == 0, started.stderr
    facts = user.run("dasklab", "plan", "-i", "inventory/hosts.yml")
    assert facts.returncode != 0 or lines(facts.stdout)  # the node's name differs
    hosts = user.folder / "inventory" / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("mynode:", "pve:"))
    after = user.run("dasklab", "plan", "-i", "inventory/hosts.yml")
    assert after.returncode == 0, after.stdout + after.stderr
    assert lines(after.stdout) == [line.replace("mynode", "pve") for line in lines(before.stdout)]


def test_node_shell_works_in_a_state_folder_with_a_space(user: User) -> None:
    """The node's shell is a program in that folder and runs in another network namespace."""
    namespace = Path("/proc/self/ns/net").readlink()
    play = user.folder / "node.yml"
    script = user.folder / "node.sh"
    script.write_text(f"#!/bin/sh\ntest $(readlink /proc/self/ns/net) != {namespace}\n")
    play.write_text(
        "- hosts: hypervisors\n  gather_facts: false\n  tasks:\n"
        f"    - {{name: Look, ansible.builtin.script: '{script}'}}\n"
    )
    process = user.run("ansible-playbook", "-i", "inventory/hosts.yml", str(play),
                    ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr


def test_lab_without_machines_is_reported_and_leaves_no_run(user: User) -> None:
    for words in (["run", "baseline", "--quick"], ["baseline"], ["ssh", "worker-1"]):
        process = user.run("dasklab", *words, "-i", "inventory/hosts.yml")
        assert process.returncode == 1
        assert re.match(
            r"dasklab: (no machine of this lab is running"
            r"|the lab differs from the inventory: worker-1 is not running)\n",
            process.stderr,
        )
    assert not (user.folder / "results").exists()


def test_stopped_endpoint_stays_stopped(user: User) -> None:
    stop = user.run("dasklab", "minipve", "stop", MINIPVE_STATE=str(user.folder / "another"))
    assert stop.stdout == "stopped\n", stop.stderr
    for words in (["plan"], ["status"], ["run", "baseline", "--quick"]):
        process = user.run("dasklab", *words, "-i", "inventory/hosts.yml")
        assert (process.returncode, process.stdout) == (1, "")
        assert process.stderr.startswith("dasklab: the local endpoint of lab 'dasklab' is not running\n")
    assert user.run("dasklab", "minipve", "status").returncode == 1


def test_command_announces_its_lab(user: User) -> None:
    process = user.run("dasklab", "destroy", "--yes", "-i", "inventory/hosts.yml")
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout.endswith("Removed lab 'dasklab'. Results stay.\n")
    path = user.folder / "inventory" / "hosts.yml"
    first = process.stderr.splitlines()[0]
    assert re.fullmatch(rf"Inventory {path}, endpoint https://127\.0\.0\.1:\d+, lab dasklab", first)


def test_callbacks_have_readable_documentation(user: User) -> None:
    for name in ("dasklab", "lab_lock"):
        shown = user.run("ansible-doc", "-t", "callback", name, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))
        assert shown.returncode == 0, shown.stderr

"""The dry run of ``playbooks/provision.yml``: the API calls that ``dasklab up`` would make."""

from __future__ import annotations

import subprocess
from typing import Any

from dasklab.console.lab.playbooks import play
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.terminal import echo

PLAN_OPTIONS = ("--check", "--diff", "--tags", "key,machines")


def print_plan(lab: Inventory) -> None:
    """Print the plan of an inventory, without making any of its calls."""
    play("provision.yml", lab, PLAN_OPTIONS, plan_variables(lab))


def plan_variables(lab: Inventory) -> dict[str, Any]:
    """Return the variables. A local endpoint that was never started stays stopped: it has no machines yet."""
    if presence.never_started(lab):
        echo("The local endpoint has never been started: this is the plan for a new one.", err=True)
        account = {"user": "lab@pve", "token_id": "none", "token_secret": "none"}
        facts = {"endpoint_facts": _placeholder_facts(lab), "endpoint_account": account}
        return {**facts, "proxmox_vm_fresh": True}
    presence.require_endpoint(lab)
    return {}


def _placeholder_facts(lab: Inventory) -> dict[str, Any]:
    """Return stand-ins for the facts that a local endpoint writes when it is first started."""
    build = lab.optional(lab.hosts()[0], "endpoint_image_build") or []
    images = {"image_file": ["--path"], "template_file": ["--container", "--path"]}
    return {
        "host": "not-started", "port": 8006, "ca_file": "", "shell": "/bin/sh", "interfaces_file": "",
        **{key: _output([*build, *words]) for key, words in images.items() if build},
    }  # fmt: skip


def _output(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

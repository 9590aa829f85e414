"""``dasklab plan``: what ``dasklab up`` would do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import click

from dasklab.commands.options import inventory_option
from dasklab.commands.playbooks import answer, play
from dasklab.machines import local_host, presence
from dasklab.machines.inventory import Inventory
from dasklab.machines.variables import open_lab


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@inventory_option
def plan(as_json: bool, inventory: Path) -> None:
    """Print the API calls that `dasklab up` would make."""
    lab = open_lab(inventory)
    if as_json:
        from dasklab.commands.json_documents import CallRow, to_json

        calls = answer("provision.yml", lab, "plan_file", _options(lab))
        click.echo(to_json([CallRow.model_validate(call) for call in calls]))
    else:
        print_plan(lab)
    local_host.require(lab)


def print_plan(lab: Inventory) -> None:
    """Print the plan of an inventory, without making any of its calls."""
    play("provision.yml", lab, _options(lab))


def _options(lab: Inventory) -> list[str]:
    """Return the options. A local endpoint that was never started stays stopped: it has no machines yet."""
    options = ["--check", "--diff", "--tags", "key,machines"]
    if presence.never_started(lab):
        click.echo("The local endpoint has never been started: this is the plan for a new one.", err=True)
        account = {"user": "lab@pve", "token_id": "none", "token_secret": "none"}
        facts = {"endpoint_facts": _placeholder_facts(lab), "endpoint_account": account}
        options += ["-e", json.dumps({**facts, "proxmox_vm_fresh": True})]
    else:
        presence.require_endpoint(lab)
    return options


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

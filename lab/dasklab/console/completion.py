"""What a shell completes: names of hosts and of experiments. What cannot be read is not completed."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import Inventory, default_inventory
from dasklab.paths import EXPERIMENTS


def complete_hosts(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Return the hosts of the inventory that the command line names, or of the default one."""
    inventory = context.params.get("inventory") or context.find_root().params.get("inventory")
    try:
        path = Path(inventory or os.environ.get("DASKLAB_INVENTORY") or default_inventory())
        hosts = Inventory(path.absolute()).hosts()
    except (LabError, OSError):
        return []
    return [CompletionItem(host) for host in hosts if host.startswith(start)]


def complete_experiments(
    context: click.Context, parameter: click.Parameter, start: str
) -> list[CompletionItem]:
    """Return the experiments that come with dasklab, and files and folders if none begins so."""
    names = sorted(path.stem for path in EXPERIMENTS.glob("*.yml") if path.stem.startswith(start))
    return [CompletionItem(name) for name in names] or [CompletionItem(start, type="file")]

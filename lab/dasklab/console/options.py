"""Command-line options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dasklab.console.path_types import OutputFolder, UserPath
from dasklab.machines.inventory.ansible_inventory import default_inventory
from dasklab.paths import results

INVENTORY = "-i", "--inventory"
Command = TypeVar("Command", bound=Callable[..., Any])


def chosen_inventory() -> Path:
    """Return the inventory named before the command (``dasklab -i FILE doctor``), else the default one."""
    before_command: Path | None = click.get_current_context().find_root().params.get("inventory")
    return before_command or Path(os.environ.get("DASKLAB_INVENTORY") or default_inventory())


def inventory_option(command: Command) -> Command:
    """Add the options of commands that read an inventory: which one, and the password of its vault."""
    vault = click.option(
        "--vault-password-file",
        type=UserPath(exists=True, dir_okay=False),
        expose_value=False,
        callback=_set_vault_password_file,
        help="File with the Ansible Vault password of the inventory, or a program that prints it.",
    )
    inventory = click.option(
        *INVENTORY,
        type=UserPath(),
        default=chosen_inventory,
        show_default="inventory/hosts.yml, or $DASKLAB_INVENTORY",
        help="Inventory of the lab.",
    )
    return inventory(vault(command))


def _set_vault_password_file(_: click.Context, __: click.Parameter, file: Path | None) -> None:
    if file:
        os.environ["ANSIBLE_VAULT_PASSWORD_FILE"] = str(file)  # for the inventory and for playbooks


def _results(path_type: UserPath) -> Callable[[Command], Command]:
    return click.option(
        "--results",
        "root",
        type=path_type,
        default=results,
        show_default="./results in a lab's folder, or $DASKLAB_RESULTS",
        help="Folder of all runs.",
    )


results_option = _results(UserPath(file_okay=False))
new_results_option = _results(OutputFolder())  # for commands that start runs

on_option = click.option(
    "--on",
    "address",
    metavar="SCHEDULER",
    help="Simulate on the workers of this Dask cluster, for example tcp://10.0.0.2:8786.",
)

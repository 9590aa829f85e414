"""What roles say of themselves, for a task that asks several; Ansible's own reader takes a second for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

CHECKED = ("type", "elements", "choices", "required", "options", "no_log")


def role_contract(roles: list[str], directory: str) -> dict[str, Any]:
    """Return the options of several roles' entry points as one, with what is checked and no prose."""
    entries = [
        entry
        for role in roles
        for entry in _read(directory, role, "meta/argument_specs.yml")["argument_specs"].values()
    ]
    options = {name: option for entry in entries for name, option in entry["options"].items()}
    return {name: {k: v for k, v in each.items() if k in CHECKED} for name, each in options.items()}


def role_files(roles: list[str], directory: str) -> list[dict[str, str]]:
    """Return what several roles bring, ``<role>_files`` of their variables, as `lab_files` has it."""
    return [file for role in roles for file in _read(directory, role, "vars/main.yml")[f"{role}_files"]]


def _read(directory: str, role: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(Path(directory, role, name).read_text(), yaml.CSafeLoader)
    return found


class FilterModule:
    """Ansible's way to the functions above."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"role_contract": role_contract, "role_files": role_files}

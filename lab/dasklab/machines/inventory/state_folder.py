"""The owner of a state folder: the folder of a local endpoint belongs to the lab whose account is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import Inventory

ACCOUNT = "account.json"


def read_account(state: Path) -> dict[str, Any]:
    """Return the stored account of a local endpoint; empty if there is none or it is damaged."""
    try:
        content = json.loads((state / ACCOUNT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def refuse_foreign(state: Path, lab: str) -> None:
    """Refuse the state folder of another lab.

    Raises:
        LabError: naming the folder and its lab.
    """
    owner = read_account(state).get("lab", lab)
    if owner != lab:
        raise LabError(
            f"state folder {state} belongs to lab {owner}, not to lab {lab}",
            "set DASKLAB_STATE or the inventory's lab_state_dir to a folder of this lab's own, or unset it",
        )


def refuse_foreign_state(lab: Inventory) -> None:
    """Refuse a lab with a local endpoint if its state folder belongs to another lab.

    Raises:
        LabError: naming the folder and its lab.
    """
    host = lab.hosts()[0]
    if lab.has(host, "endpoint_start") and (state := lab.optional(host, "lab_state_dir")):
        refuse_foreign(Path(state), str(lab.optional(host, "lab_name")))

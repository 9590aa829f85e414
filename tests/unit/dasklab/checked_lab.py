"""A new lab whose local endpoint is never started, and whose check of this machine answers as a test says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dasklab.machines.inventory import new_lab

OK = {"findings": [], "packages": [], "usable": True, "kernel_lacks": []}
NO_NETEM = {**OK, "kernel_lacks": ["netem"]}
NO_ROOT = {
    **OK,
    "findings": [{"status": "missing", "text": "containers need root: use sudo", "fix": None}],
    "usable": False,
}


def create(folder: Path, answer: dict[str, Any], kind: str = "containers") -> Path:
    """Return the inventory of a new lab; ``answer`` is what `minipve check --json` prints."""
    inventory = new_lab.create(folder / "mylab", kind)
    (folder / "check.json").write_text(json.dumps(answer))
    script = f'echo "$@" >>{folder}/words; cat {folder}/check.json; exit {int(not answer["usable"])}'
    variables = inventory.parent / "group_vars" / "all.yml"
    argv = json.dumps(["/bin/sh", "-c", script, "check"])
    text, number = re.subn(
        r"^endpoint_check: .*$", lambda _: f"endpoint_check: {argv}", variables.read_text(), flags=re.M
    )
    assert number == 1
    variables.write_text(text)
    return inventory

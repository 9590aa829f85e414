"""What this machine and user can do for a lab with a local endpoint, as the endpoint's own check reports it.

The check starts and changes nothing. A lab without a local endpoint has no such check: its node is asked.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.model.settings.nic import GuestKind


class Line(BaseModel):
    """One line of the check; ``missing`` is what the lab cannot do without."""

    status: str
    text: str
    fix: str | None = None


class HostCheck(BaseModel):
    """What `minipve check --json` prints."""

    findings: tuple[Line, ...]
    packages: tuple[str, ...]
    usable: bool
    kernel_lacks: tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """What is missing, in one line, and how to fix it."""

    text: str
    fix: str | None


def kinds_of(lab: Inventory) -> tuple[GuestKind, ...]:
    """Return the kinds of guest that this lab has."""
    kinds = {lab.optional(host, "lab_guests") or "vm" for host in lab.hosts()}
    return tuple(kind for kind in ("vm", "container") if kind in kinds)


def check(lab: Inventory, kinds: tuple[GuestKind, ...] | None = None) -> HostCheck | None:
    """Check what guests of these kinds need here, by default those of the lab; None without local endpoint.

    Raises:
        LabError: the check itself failed.
    """
    argv = lab.optional(lab.hosts()[0], "endpoint_check")
    if not argv:
        return None
    words = [word for kind in kinds or kinds_of(lab) for word in ("--kind", kind)]
    process = subprocess.run([*argv, *words, "--json"], capture_output=True, text=True, check=False)
    try:
        return HostCheck.model_validate_json(process.stdout)
    except ValidationError:
        last = (process.stderr.strip() or process.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise LabError(f"this machine could not be checked: {last}", "dasklab minipve check") from None


def problems(checked: HostCheck) -> Iterator[Problem]:
    """Yield what is missing; programs are named with the command that installs their packages."""
    install = f"sudo apt install {' '.join(checked.packages)}" if checked.packages else None
    for line in checked.findings:
        if line.status == "missing":
            yield Problem(line.text, line.fix or install)


def require(lab: Inventory, kinds: tuple[GuestKind, ...] | None = None) -> HostCheck | None:
    """Refuse a lab whose guests this machine or user cannot run. Returns the check.

    Raises:
        LabError: naming what is missing, and what helps.
    """
    checked = check(lab, kinds)
    if checked and not checked.usable:
        missing = list(problems(checked))
        texts = "; ".join(problem.text for problem in missing)
        fixes = dict.fromkeys(problem.fix for problem in missing if problem.fix)
        raise LabError(f"this lab cannot run here: {texts}", "; then: ".join(fixes) or None)
    return checked

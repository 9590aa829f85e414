"""Lock the lab while a command changes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.running.lock.lock import is_inherited, lock_files, lock_lab
from dasklab.terminal import echo

if TYPE_CHECKING:
    from dasklab.machines.endpoint.lab_note import LabNote


@contextmanager
def locked(lab: Inventory, *, reset: bool) -> Iterator[None]:
    """Lock a lab, so that two commands do not change it at the same time.

    Args:
        lab: the inventory. Another inventory of the same lab asks for the same lock.
        reset: whether the lab must match its inventory. Processes that a killed command left behind are ended
            in any case; with ``reset`` their impairments, captures and clusters are cleared too.

    Raises:
        LabError: another command is using the lab.
    """
    files = lock_files(lab.hosts(), lab.optional)
    note = _held_note(lab, files)
    with lock_lab(files) as orphans_ended, note as abandoned:
        if orphans_ended:
            echo("Ended processes that a killed command had left running on this lab.", err=True)
        if abandoned:
            echo(f"Took over the lab from a command that has ended: {abandoned.owner}", err=True)
        if reset and (orphans_ended or abandoned):
            from dasklab.running.playbooks.ansible_lab import AnsibleLab

            AnsibleLab(lab.path).reset()
        yield


def _held_note(lab: Inventory, files: Iterable[Path]) -> AbstractContextManager[LabNote | None]:
    """Return what holds a lab on a node by its note; nothing does so for a local lab, or a second time."""
    host = lab.hosts()[0]
    is_local = lab.has(host, "endpoint_start") or not lab.has(host, "proxmox")
    if is_local or is_inherited(files):
        return nullcontext()
    from dasklab.machines.endpoint.proxmox import Pve
    from dasklab.machines.inventory.endpoint import Endpoint
    from dasklab.running.lock.note import NoteLock, held

    guests = [lab.value(name, "guest") for name in lab.hosts()]
    places = {(str(guest["node"]), int(guest["vmid"])) for guest in guests}
    pve = Pve(Endpoint.from_inventory(lab.value(host, "proxmox")))
    return held(NoteLock(pve, str(lab.value(host, "lab_name")), places, files))

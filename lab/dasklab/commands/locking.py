"""The lab's lock, for commands that change the lab."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from dasklab.machines.inventory import Inventory
from dasklab.running.lock import lock_lab, lock_names


@contextmanager
def locked(lab: Inventory, *, reset: bool) -> Iterator[None]:
    """Keep other commands away from a lab: they would undo each other's links.

    Args:
        lab: the inventory; another one of the same lab is kept away as well.
        reset: whether the lab has to be as its inventory has it. If a killed command left processes at work
        there, these are ended, and what they had begun is cleared.

    Raises:
        LabError: another command is at work on the lab.
    """
    with lock_lab(lock_names(lab.hosts(), lab.optional)) as ended:
        if ended:
            click.echo("A killed command was still at work on this lab; it has been ended.", err=True)
            if reset:
                from dasklab.running.ansible_lab import AnsibleLab

                AnsibleLab(lab.path).reset()
        yield

"""Lock the lab while a command changes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from dasklab.machines.inventory import Inventory
from dasklab.running.lock import lock_files, lock_lab


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
    with lock_lab(lock_files(lab.hosts(), lab.optional)) as orphans_ended:
        if orphans_ended:
            click.echo("Ended processes that a killed command had left running on this lab.", err=True)
            if reset:
                from dasklab.running.ansible_lab import AnsibleLab

                AnsibleLab(lab.path).reset()
        yield

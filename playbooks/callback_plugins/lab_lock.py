"""Locks the lab while a playbook changes it, so that a playbook by hand and a command exclude each other.

``dasklab`` already holds the lock and passes it on. A play that only reads sets the variable ``lab_lock`` to
``unneeded``. Check mode changes nothing and does not lock.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible.template import Templar
from dasklab.errors import LabError
from dasklab.running.lock.lock import LabLock, lock_files

DOCUMENTATION = """
name: lab_lock
type: aggregate
short_description: lock the lab while a playbook changes it
description:
  - A play locks the lab of its inventory until the playbook ends. The variable C(lab_lock) of a play that
    only reads is C(unneeded).
author: [dasklab]
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Takes the lock before a play that needs it, and keeps it until the playbook ends."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "lab_lock"

    def __init__(self) -> None:
        super().__init__()
        self._lock: LabLock | None = None

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Take the lock if the play needs it. End the playbook if another command holds it."""
        needed = play.get_vars().get("lab_lock") != "unneeded"
        if needed and self._lock is None and not context.CLIARGS.get("check"):
            self._acquire(play)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Release the lock at the end of the playbook."""
        if self._lock:
            self._lock.release()
            self._lock = None

    def _acquire(self, play: Any) -> None:
        files = _files(play)
        if not files:
            return
        lock = LabLock(files)
        try:
            lock.acquire()
        except LabError as error:
            self._display.error(str(error))
            sys.exit(1)
        for descriptor in lock.descriptors:
            # Ansible's workers inherit it, the programs that they start do not.
            os.set_inheritable(descriptor, False)
        self._lock = lock


def _files(play: Any) -> list[Path]:
    """Return the lock files of the inventory's lab; none if it has no lab."""
    variables = play.get_variable_manager().get_vars(play=play)
    hosts = variables["groups"].get("lab")
    if not hosts:
        return []

    def value(host: str, name: str) -> Any:
        raw = {**variables, **variables["hostvars"].raw_get(host)}
        return Templar(loader=play.get_loader(), variables=raw).template(raw[name]) if name in raw else None

    return lock_files(hosts, value)

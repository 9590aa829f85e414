"""Locks the lab for as long as a playbook changes it, so that a playbook started by hand does not meet a
command.

``dasklab`` holds the lock already and passes it on; then there is nothing to take. A play says with a
variable what it needs: without one the lab is locked, ``lab_lock: unneeded`` is for plays that only look,
``lab_lock: released`` for one whose task is a command that takes the lock itself. Check mode changes
nothing and locks nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible.template import Templar
from dasklab.errors import LabError
from dasklab.running.lock import LabLock, lock_names

DOCUMENTATION = """
name: lab_lock
type: aggregate
short_description: lock the lab while a playbook changes it
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
        """Take or release the lock as the play needs it; end the playbook if another command has the lab."""
        need = play.get_vars().get("lab_lock", "locked")
        if need == "released":
            self._release()
        if need == "locked" and self._lock is None and not context.CLIARGS.get("check"):
            self._acquire(play)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Release the lock: the playbook has ended."""
        self._release()

    def _release(self) -> None:
        if self._lock:
            self._lock.release()
            self._lock = None

    def _acquire(self, play: Any) -> None:
        names = _names(play)
        if not names:
            return
        lock = LabLock(names)
        try:
            lock.acquire()
        except LabError as error:
            self._display.error(str(error))
            sys.exit(1)
        for descriptor in lock.descriptors:  # for our forks, not for what they start
            os.set_inheritable(descriptor, False)
        self._lock = lock


def _names(play: Any) -> list[str]:
    """What identifies the lab of the inventory; nothing if there is no lab in it."""
    variables = play.get_variable_manager().get_vars(play=play)
    hosts = variables["groups"].get("lab")
    if not hosts:
        return []

    def value(host: str, name: str) -> Any:
        raw = {**variables, **variables["hostvars"].raw_get(host)}
        return Templar(loader=play.get_loader(), variables=raw).template(raw[name]) if name in raw else None

    return lock_names(hosts, value)

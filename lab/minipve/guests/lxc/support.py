"""Whether this host can run containers."""

from __future__ import annotations

from minipve.base import process
from minipve.base.process import MachineError
from minipve.base.user_error import UserError
from minipve.guests.lxc import cgroups, user_ids


def require() -> None:
    """Raise UserError or MachineError, with what helps, if this host cannot run containers."""
    user_ids.require_root()
    process.require_tools("lxc-start", "lxc-usernsexec", "nsenter", "tar")
    if not any(cgroups.ROOT.glob("*")):
        raise MachineError("containers need control groups: mount -t cgroup2 none /sys/fs/cgroup")


def problem() -> str:
    """Return why this host cannot run unprivileged containers and what helps; "" if it can."""
    try:
        require()
        user_ids.require_namespaces()
    except (UserError, MachineError) as error:
        return str(error)
    return ""

"""Raise the kernel's limit of inotify instances when many containers run.

systemd watches files with inotify, and all containers of a host count as one user. With the kernel's
default of 128 instances about the 35th container ends as soon as it starts. Proxmox VE's packages raise the
limit too.
"""

from __future__ import annotations

from pathlib import Path

from minipve.base.process import MachineError

LIMIT_FILE = Path("/proc/sys/fs/inotify/max_user_instances")
_PROXMOX_LIMIT = 65536
_PER_CONTAINER, _FOR_HOST = 4, 32


def ensure_limit(containers: int) -> str:
    """Raise the limit if it is too low for this number of containers; returns a message if it was raised.

    Raises:
        MachineError: the limit is too low and cannot be raised.
    """
    limit = int(LIMIT_FILE.read_text())
    if containers * _PER_CONTAINER + _FOR_HOST <= limit:
        return ""
    try:
        LIMIT_FILE.write_text(str(_PROXMOX_LIMIT))
    except OSError as error:
        command = f"sysctl -w fs.inotify.max_user_instances={_PROXMOX_LIMIT}"
        raise MachineError(
            f"{limit} inotify instances are too few for {containers} containers: {command}"
        ) from error
    return f"fs.inotify.max_user_instances raised from {limit} to {_PROXMOX_LIMIT}, as on a Proxmox VE node"

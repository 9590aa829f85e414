"""What the kernel allows all containers together, raised to what a Proxmox VE node's own package sets.

Systemd watches files by inotify, of which all containers of this machine count as one user's: with the
kernel's default the thirty-fifth or so would end as soon as it has begun.
"""

from __future__ import annotations

from pathlib import Path

from minipve.process import MachineError

INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_OF_A_NODE = 65536
_EACH, _OTHERS = 4, 32


def allow(containers: int) -> str:
    """Raise the limit where it is too low for so many; returns what was done, if anything was."""
    limit = int(INSTANCES.read_text())
    if containers * _EACH + _OTHERS <= limit:
        return ""
    try:
        INSTANCES.write_text(str(_OF_A_NODE))
    except OSError as failed:
        line = f"sysctl -w fs.inotify.max_user_instances={_OF_A_NODE}"
        raise MachineError(
            f"{limit} inotify instances are too few for {containers} containers: {line}"
        ) from failed
    return f"fs.inotify.max_user_instances raised from {limit} to {_OF_A_NODE}, as on a node"

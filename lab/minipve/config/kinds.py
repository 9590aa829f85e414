"""The two kinds of guest: what a virtual machine and a container are called where PVE tells them apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """``name`` stands in paths and ids, ``word`` in errors, ``tasks`` before the names of tasks."""

    name: str
    word: str
    tasks: str
    folder: str
    lock: str
    damaging: str
    """The options that are worked with as they are: a guest with a damaged one is left alone."""
    modified: str
    """What a change of an outdated configuration is refused with."""

    @property
    def path(self) -> str:
        """The path of a guest, as in PVE's API viewer."""
        return f"/nodes/{{node}}/{self.name}/{{vmid}}"


QEMU = Kind(
    "qemu",
    "VM",
    "qm",
    "qemu-server",
    "/var/lock/qemu-server/lock-{}.conf",
    r"(?:net|unused|ide|sata|scsi|virtio)[0-9]+|memory|agent|cpu",
    "checksum mismatch (file change by other user?)",
)
LXC = Kind(
    "lxc",
    "CT",
    "vz",
    "lxc",
    "/run/lock/lxc/pve-config-{}.lock",
    r"net[0-9]+|rootfs|memory|swap|features",
    "detected modified configuration - file changed by other user? Try again.",
)

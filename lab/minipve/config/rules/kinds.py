"""The two kinds of guest, virtual machine and container, and the words that PVE uses for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """``name`` is for paths and ids, ``word`` for error messages, ``tasks`` is the prefix of task types."""

    name: str
    word: str
    tasks: str
    folder: str
    lock: str
    damaging: str
    """Pattern of the options that we parse. An invalid one makes the configuration a damaged one."""
    modified: str
    """PVE's error when the caller's digest is out of date."""

    @property
    def path(self) -> str:
        """The path template of a guest, as in PVE's API viewer."""
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

"""Write a root file system as a container template for any Proxmox VE.

It is the file system of the machines' disk without what only a machine needs, so that machines and
containers have the same packages.
"""

from __future__ import annotations

from pathlib import Path

from minipve.base import process
from minipve.image import debian

SUFFIX = ".tar.zst"
EXCLUDED = (
    "./boot/*",
    "./dev/*",
    "./usr/lib/modules/*",
    "./usr/local/sbin/nocloud",
    "./etc/udev/rules.d/99-nocloud.rules",
    "./etc/systemd/system/multi-user.target.wants/qemu-guest-agent.service",
)


def write(rootfs: Path, target: Path) -> None:
    """Write a root file system (see `debian.make`) as the template ``target``."""
    exclude = [f"--exclude={pattern}" for pattern in EXCLUDED]
    compressor = f"{process.which('zstd')} -T0 -3"
    words = ["tar", "--numeric-owner", "--xattrs", "--anchored", *exclude, "-I", compressor]
    debian.run_on(rootfs, lambda folder: [*words, "-cf", target, "-C", folder, "."])

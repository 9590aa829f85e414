"""The tree of files as a container template, as any Proxmox VE takes it: the machine's, but for what only a
machine needs. One tree makes both, so that machines and containers have the same packages."""

from __future__ import annotations

from pathlib import Path

from minipve import process
from minipve.image import debian

SUFFIX = ".tar.zst"
LEFT_OUT = (
    "./boot/*",
    "./dev/*",
    "./usr/lib/modules/*",
    "./usr/local/sbin/nocloud",
    "./etc/udev/rules.d/99-nocloud.rules",
    "./etc/systemd/system/multi-user.target.wants/qemu-guest-agent.service",
)


def write(tree: Path, target: Path) -> None:
    """Write ``tree``, as root a directory, else a tar file, as the template ``target``."""
    left_out = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    compressor = f"{process.which('zstd')} -T0 -3"
    words = ["tar", "--numeric-owner", "--xattrs", "--anchored", *left_out, "-I", compressor]
    debian.run_on(tree, lambda folder: [*words, "-cf", target, "-C", folder, "."])

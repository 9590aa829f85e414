"""Direct kernel boot: QEMU loads a golden image's kernel itself, as `-kernel` does.

This saves an emulated machine ten seconds of firmware, boot loader and unpacking. The build of a golden
image copies kernel, initramfs and command line to a folder beside the image. The folder's name is a digest of
them. The build also writes that digest to the disk's second sector, which neither GRUB nor ext4 uses. So each
copy, linked clone and snapshot of the image names its kernel.

Rule: QEMU never loads a file of a guest's or a client's disk. A disk only chooses among the kernels of this
user's golden images. A disk that names none of them starts from its own boot loader.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from minipve.base import process
from minipve.base.errors import MachineError
from minipve.base.paths import Paths

INSIDE = "/boot/direct"  # guest/machine.sh writes the files there
FILES = ("kernel", "initrd", "cmdline")
SECTOR_BYTES = 512
_MARK = re.compile(rb"minipve: boot ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class Boot:
    """The kernel, initramfs and kernel command line that QEMU boots."""

    kernel: Path
    initrd: Path
    cmdline: str


def keep(raw: Path, parent: Path) -> None:
    """Copy what to boot of a golden image's raw disk to a folder in ``parent``, and name it on the disk.

    Raises:
        MachineError: the file system lacks one of the files.
    """
    draft = parent / "boot"
    draft.mkdir()
    digest = hashlib.sha256()
    for name in FILES:
        file = draft / name
        process.run(["debugfs", "-R", f'dump {INSIDE}/{name} "{file}"', raw], timeout_s=600)
        if not file.is_file() or file.stat().st_size == 0:  # debugfs ends with status 0 in any case
            raise MachineError(f"no {INSIDE}/{name} in the file system of {raw.name}")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    draft.rename(parent / _folder(digest.hexdigest()))
    with raw.open("r+b") as disk:
        disk.seek(SECTOR_BYTES)
        disk.write(boot_marker(digest.hexdigest()))


def boot_marker(digest: str) -> bytes:
    """Return the start of the second sector of a disk that boots the files with this digest (pure)."""
    return f"minipve: boot {digest}\n".encode()


def of_disk(disk: Path, paths: Paths) -> Boot | None:
    """Return what to boot of a disk, or None if only its own boot loader can boot it.

    Raises:
        MachineError: the disk is not an image of the format that its name states.
    """
    match = _MARK.match(_second_sector(disk))
    folder = next(paths.images.glob(f"*/{_folder(match[1].decode())}"), None) if match else None
    if folder is None:
        return None
    return Boot(folder / "kernel", folder / "initrd", (folder / "cmdline").read_text().strip())


def newest_kernel(paths: Paths) -> Path | None:
    """Return the kernel of the golden image that was built last; None if there is none."""
    kernels = paths.images.glob(f"*/{_folder('*')}/kernel")
    return max(kernels, key=lambda file: file.stat().st_mtime, default=None)


def _folder(digest: str) -> str:
    return f"boot-{digest}"


def _second_sector(disk: Path) -> bytes:
    """Read a disk of any format through its backing images. A machine may be using it."""
    words = ["qemu-img", "dd", "-U", "-f", disk.suffix.removeprefix(".") or "raw", "-O", "raw"]
    with tempfile.TemporaryDirectory(prefix="minipve-sector-") as folder:
        copy = Path(folder) / "start"
        process.run([*words, f"bs={SECTOR_BYTES}", "count=2", f"if={disk}", f"of={copy}"])
        return copy.read_bytes()[SECTOR_BYTES:]

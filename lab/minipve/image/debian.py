"""Build the guests' root file system: Debian with the requested packages.

mmdebstrap installs Debian and `guest/customize.sh` adapts it. Everything comes from this host's own package
sources, so guests need no network. For root the result is a directory; for an ordinary user, who needs user
namespaces, it is a tar file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from minipve.base import process
from minipve.base.progress import Progress
from minipve.image import apt_sources, build_tools

SUITE = "bookworm"
GUEST = Path(__file__).with_name("guest")
MMDEBSTRAP_LINES = 1000  # the progress is shown as a share of these


def tools() -> list[str]:
    """The programs that `make` needs."""
    return ["mmdebstrap", *([] if is_root() else ["newuidmap"])]


def is_root() -> bool:
    """Whether `make` builds a directory rather than a tar file."""
    return os.geteuid() == 0


def source_files(requirements: Path | None) -> list[Path]:
    """All files that determine the content of the root file system."""
    return [*sorted(file for file in GUEST.rglob("*") if file.is_file()), *filter(None, [requirements])]


def make(scratch: Path, wheels: Path | None, progress: Progress) -> Path:
    """Build the root file system below the folder ``scratch``.

    Args:
        scratch: an empty folder.
        wheels: a folder with wheels and their ``requirements.txt``; None for no Python packages.
        progress: called for each line that mmdebstrap prints.

    Returns:
        The directory, or the tar file.
    """
    stage, rootfs = scratch / "stage", scratch / "root"
    shutil.copytree(GUEST, stage)
    if wheels:
        shutil.copytree(wheels, stage / "wheels", copy_function=_link)
    words = mmdebstrap_words(rootfs, stage, apt_sources.mirrors(SUITE), apt_sources.options())
    # INITRD=No: Debian's own initramfs would double the time, and nothing boots it.
    environment = {"INITRD": "No", "LC_ALL": "C"}
    build_tools.run_logged(words, scratch / "mmdebstrap.log", progress, environment, MMDEBSTRAP_LINES)
    return rootfs


def mmdebstrap_words(target: Path, stage: Path, mirrors: list[str], options: list[str]) -> list[str]:
    """Return mmdebstrap's command line.

    As root it runs in a mount namespace of its own, so that nothing stays mounted if it is killed.
    """
    packages = ",".join((GUEST / "packages.txt").read_text().split())
    return [
        *(("unshare", "--mount", "--propagation", "private") if is_root() else ()),
        *("mmdebstrap", "--verbose", "--variant=apt", f"--include={packages}"),
        *(("--mode=root", "--format=directory") if is_root() else ("--mode=unshare", "--format=tar")),
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--aptopt={option}" for option in options),
        f"--extract-hook=copy-in {stage}/dpkg.cfg /etc/dpkg/dpkg.cfg.d",
        f"--customize-hook=copy-in {stage} /",
        f"--customize-hook=copy-in {stage}/rootfs/etc /",
        '--customize-hook=chroot "$1" sh /stage/customize.sh',
        *(SUITE, str(target), *mirrors),
    ]


def run_on(rootfs: Path, command: Callable[[Path], list[str | Path]]) -> None:
    """Run a command on the root file system as a directory; a tar file is unpacked for it.

    Args:
        rootfs: the directory or tar file.
        command: returns the command line for a directory.
    """
    if rootfs.is_dir():
        process.run(command(rootfs), timeout_s=600)
    else:
        _run_in_namespace(rootfs, command)


def _run_in_namespace(tar: Path, command: Callable[[Path], list[str | Path]]) -> None:
    """Unpack in a user namespace in which the user is root, so that files keep their owners.

    Device nodes cannot be created there. They are left out: the guest's kernel creates its own.
    """
    folder = tar.with_name("tree")
    unpack = 'mkdir "$1" && tar --exclude="./dev/*" -xf "$2" -C "$1" && shift 2 && "$@"'
    script = f'{unpack}; code=$?; rm -rf "{folder}"; exit $code'
    enter = ["unshare", "--user", "--map-root-user", "--map-auto", "sh", "-c", script, "sh"]
    process.run([*enter, folder, tar, *command(folder)], timeout_s=600)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)

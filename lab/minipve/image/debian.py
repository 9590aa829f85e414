"""The tree of files that a guest is made of: one Debian, with the packages wanted, laid down on this machine.

mmdebstrap lays Debian down and `guest/customize.sh` turns it into the lab's. Everything comes from the
package sources of this host, so guests need no network. As root the tree is a directory; an ordinary user,
with user namespaces, gets a tar file of one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from minipve import process
from minipve.image import apt_sources, build_tools
from minipve.progress import Progress

SUITE = "bookworm"
GUEST = Path(__file__).with_name("guest")
LINES = 1000  # that mmdebstrap says: only to tell how far it is


def tools() -> list[str]:
    """The programs that make a tree."""
    return ["mmdebstrap", *([] if is_root() else ["newuidmap"])]


def is_root() -> bool:
    """Whether the tree is a directory, and not a tar file."""
    return os.geteuid() == 0


def ingredients(requirements: Path | None) -> list[Path]:
    """All files that the tree follows from."""
    return [*sorted(file for file in GUEST.rglob("*") if file.is_file()), *filter(None, [requirements])]


def make(scratch: Path, wheels: Path | None, told: Progress) -> Path:
    """The tree, below ``scratch``; ``wheels`` is a folder with packages and their ``requirements.txt``."""
    stage, tree = scratch / "stage", scratch / "root"
    shutil.copytree(GUEST, stage)
    if wheels:
        shutil.copytree(wheels, stage / "wheels", copy_function=_link)
    words = mmdebstrap_words(tree, stage, apt_sources.mirrors(SUITE), apt_sources.options())
    # INITRD=No: Debian's own initramfs would take as long as all else, and nobody boots it.
    build_tools.run_logged(words, scratch / "mmdebstrap.log", told, {"INITRD": "No", "LC_ALL": "C"}, LINES)
    return tree


def mmdebstrap_words(target: Path, stage: Path, mirrors: list[str], options: list[str]) -> list[str]:
    """mmdebstrap's command line (pure but for the package list): a directory as root, else a tar file.

    As root it mounts /proc and the like in a namespace of its own: killed, it leaves nothing mounted.
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


def run_on(tree: Path, command: Callable[[Path], list[str | Path]]) -> None:
    """Run the ``command`` on the tree as a directory."""
    if tree.is_dir():
        process.run(command(tree), timeout_s=600)
    else:
        _run_in_namespace(tree, command)


def _run_in_namespace(tar: Path, command: Callable[[Path], list[str | Path]]) -> None:
    """Unpack where an ordinary user is root, so that files keep their owners.

    Device nodes, which that one cannot make, are left out: the kernel makes its own.
    """
    tree = tar.with_name("tree")
    unpack = 'mkdir "$1" && tar --exclude="./dev/*" -xf "$2" -C "$1" && shift 2 && "$@"'
    script = f'{unpack}; code=$?; rm -rf "{tree}"; exit $code'
    enter = ["unshare", "--user", "--map-root-user", "--map-auto", "sh", "-c", script, "sh"]
    process.run([*enter, tree, tar, *command(tree)], timeout_s=600)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)

"""Build the guests' root file system: Debian with the requested packages, from this host's sources."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from minipve.base import process
from minipve.base.process import Progress
from minipve.image import build_tools

# This host's apt sources and settings, so that the golden image uses the same mirror and proxy.

APT = Path("/etc/apt")
RELEVANT_OPTION = re.compile(
    r"^(Acquire::(https?::(Proxy|Timeout)|Check-Valid-Until|Check-Date|Retries)\b.*);$", re.MULTILINE
)


def host_mirrors(suite: str) -> list[str]:
    """Return this host's one-line sources of a Debian release.

    The list is empty if the host runs another release; mmdebstrap then uses its default mirror.
    """
    files = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*.list"))]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    stanzas = [file.read_text() for file in sorted((APT / "sources.list.d").glob("*.sources"))]
    all_lines = [line for text in stanzas for line in one_line_style(text)] + lines
    of_suite = [line for line in all_lines if is_debian(line, suite)]
    return of_suite if any(f" {suite} " in line for line in of_suite) else []


def is_debian(line: str, suite: str) -> bool:
    """Whether a one-line source is Debian's main archive of ``suite``, its updates or its security fixes."""
    words = re.sub(r"\[[^]]*\]", "", line).split()
    return (
        words[:1] == ["deb"]
        and words[2] in {suite, f"{suite}-updates", f"{suite}-security"}
        and "main" in words[3:]
    )


def one_line_style(deb822: str) -> list[str]:
    """Convert the enabled binary sources of a deb822 file to one-line sources (pure)."""
    stanzas = [_fields(stanza) for stanza in re.split(r"\n\s*\n", deb822)]
    return [
        f"deb {_options(fields)}{uri} {suite} {fields.get('components', '')}".rstrip()
        for fields in stanzas
        if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").lower() != "no"
        for uri in fields.get("uris", "").split()
        for suite in fields.get("suites", "").split()
    ]


def _fields(stanza: str) -> dict[str, str]:
    lines = [line for line in stanza.splitlines() if not line.startswith("#")]
    pairs = re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", "\n".join(lines), re.MULTILINE)
    return {name.lower(): " ".join(value.split()) for name, value in pairs}


def _options(fields: dict[str, str]) -> str:
    key = fields.get("signed-by", "")
    return f"[signed-by={key}] " if key.startswith("/") else ""


def options() -> list[str]:
    """Return the host's apt options that matter for downloads: proxies, timeouts, validity checks."""
    return (
        parse_options(process.run(["apt-config", "dump", "Acquire"])) if process.which("apt-config") else []
    )


def parse_options(dump: str) -> list[str]:
    """Select the relevant lines of ``apt-config dump`` (pure)."""
    return [match[0] for match in RELEVANT_OPTION.findall(dump)]


# Build the guests' root file system: Debian with the requested packages.
#
# mmdebstrap installs Debian and `guest/customize.sh` adapts it. Everything comes from this host's own
# package
# sources, so guests need no network. For root the result is a directory; for an ordinary user, who needs
# user
# namespaces, it is a tar file.

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
    words = mmdebstrap_words(rootfs, stage, host_mirrors(SUITE), options())
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

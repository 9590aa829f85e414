"""Debian packages that a guest lacks, downloaded once: a guest without network installs from them.

    python -m minipve.image.debs STATUS PACKAGE...      an archive of them and all that they need besides

STATUS is a copy of the guest's /var/lib/dpkg/status: what it has already is not downloaded. Everything comes
from this host's own package sources for the guests' Debian, as the golden image does.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
from pathlib import Path

from minipve.image import apt_sources, build_tools, debian
from minipve.paths import Paths
from minipve.process import need
from minipve.progress import silent
from minipve.user_error import UserError


def archive_path(status: Path, packages: list[str]) -> Path:
    """Where the archive is or will be: guests that have the same share it."""
    named = " ".join(sorted(packages)).encode() + b"\0" + status.read_bytes()
    return Paths.of().cache / "debs" / f"{packages[0]}-{hashlib.sha256(named).hexdigest()[:12]}.tar"


def fetch(status: Path, packages: list[str]) -> Path:
    """The archive, downloaded by apt unless it is there already.

    Raises:
        UserError: this host has no sources for the guests' Debian, or apt could not download.
    """
    there = archive_path(status, packages)
    there.parent.mkdir(parents=True, exist_ok=True)
    with build_tools.alone(there.with_suffix(".lock"), silent):
        if not there.exists():
            _download(there, status, packages)
    return there


def _download(there: Path, status: Path, packages: list[str]) -> None:
    need("apt-get")
    mirrors = apt_sources.mirrors(debian.SUITE)
    if not mirrors:
        raise UserError(
            f"this host has no package sources for {debian.SUITE}, which the guests are",
            "add them below /etc/apt, or give the guests a network and `spark_jre_command: ''`",
        )
    with build_tools.scratch_directory(there.parent) as scratch:
        (scratch / "sources.list").write_text("\n".join(mirrors) + "\n")
        for folder in ("lists/partial", "archives/partial"):
            (scratch / folder).mkdir(parents=True)
        for verb in (["update"], ["install", "--download-only", "--no-install-recommends", *packages]):
            build_tools.run_logged(
                apt_words(scratch, status, verb), scratch / "apt.log", silent, {"LC_ALL": "C"}
            )
        fresh = scratch / there.name
        with tarfile.open(fresh, "w") as tar:
            for deb in sorted((scratch / "archives").glob("*.deb")):
                tar.add(deb, deb.name)
        fresh.rename(there)


def apt_words(scratch: Path, status: Path, verb: list[str]) -> list[str]:
    """apt-get's command line: as if on a host with these packages, all files below ``scratch`` (pure)."""
    options = {
        "Dir::Etc::SourceList": scratch / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::status": status.absolute(),
        "Dir::State::lists": scratch / "lists",
        "Dir::Cache": scratch,
        "Dir::Cache::archives": scratch / "archives",
        "APT::Sandbox::User": os.environ.get("USER", "root") if os.geteuid() else "root",
        "Debug::NoLocking": "1",
    }
    return ["apt-get", "--yes", *(f"--option={key}={value}" for key, value in options.items()), *verb]


def main() -> None:
    """Print the archive's path."""
    try:
        print(fetch(Path(sys.argv[1]), sys.argv[2:]))
    except UserError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()

"""Download Debian packages for guests that have no network to install them from.

    python -m minipve.image.debs STATUS PACKAGE...

prints the path of an archive with the packages and their dependencies. STATUS is a copy of the guest's
/var/lib/dpkg/status: packages that the guest has are left out. The downloads come from this host's own
package sources for the guests' Debian release, like the golden image.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
from pathlib import Path

from minipve.base.errors import UserError
from minipve.base.paths import Paths
from minipve.base.process import require_tools, silent
from minipve.image import build_tools, debian


def archive_path(status: Path, packages: list[str]) -> Path:
    """The path of the archive, whether it exists or not. Guests with equal packages share one."""
    content = " ".join(sorted(packages)).encode() + b"\0" + status.read_bytes()
    return Paths.of().cache / "debs" / f"{packages[0]}-{hashlib.sha256(content).hexdigest()[:12]}.tar"


def fetch(status: Path, packages: list[str]) -> Path:
    """Return the path of the archive. Apt downloads the packages unless the archive exists.

    Raises:
        UserError: this host has no package sources for the guests' Debian release, or apt failed.
    """
    archive = archive_path(status, packages)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with build_tools.exclusive(archive.with_suffix(".lock"), silent):
        if not archive.exists():
            _download(archive, status, packages)
    return archive


def _download(archive: Path, status: Path, packages: list[str]) -> None:
    require_tools("apt-get")
    mirrors = debian.host_mirrors(debian.SUITE)
    if not mirrors:
        raise UserError(
            f"this host has no package sources for {debian.SUITE}, the guests' Debian release",
            "add them below /etc/apt, or give the guests a network and set `spark_jre_command: ''`",
        )
    with build_tools.scratch_directory(archive.parent) as scratch:
        (scratch / "sources.list").write_text("\n".join(mirrors) + "\n")
        for folder in ("lists/partial", "archives/partial"):
            (scratch / folder).mkdir(parents=True)
        for verb in (["update"], ["install", "--download-only", "--no-install-recommends", *packages]):
            build_tools.run_logged(
                apt_words(scratch, status, verb), scratch / "apt.log", silent, {"LC_ALL": "C"}
            )
        draft = scratch / archive.name
        with tarfile.open(draft, "w") as tar:
            for deb in sorted((scratch / "archives").glob("*.deb")):
                tar.add(deb, deb.name)
        draft.rename(archive)


def apt_words(scratch: Path, status: Path, verb: list[str]) -> list[str]:
    """Return apt-get's command line. It acts as on the guest, with all its files below ``scratch`` (pure)."""
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
    try:
        print(fetch(Path(sys.argv[1]), sys.argv[2:]))
    except UserError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()

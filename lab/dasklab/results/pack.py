"""A run or a record as one file, and such a file opened again.

The file is a ZIP archive of the folder, without links and what is computed again from the rest. To open it,
its content is unpacked into the user's cache, once: the folder there is named after the file's SHA-256.
A file may come from anybody, so what it may unpack to is bounded.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.notices import warn
from dasklab.results import cached

SUFFIX = ".zip"
REPORT = "report"
PACKS = "packs"

COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others take as much memory as a file asks for
MAX_FILES = 100_000  # the largest run so far has 6,000
MAX_UNPACKED_BYTES = 16 * 1024**3
MAX_PACKING_RATIO = 100  # packed runs have 3 to 20
RATIO_APPLIES_BYTES = 100 * 1024**2  # smaller content does no harm, however well it packs


def pack(folder: Path, file: Path) -> Path:
    """Write a folder of a run or of a record to one file, whole or not at all; return the file.

    Raises:
        OSError: a file cannot be read, or ``file`` cannot be written.
    """
    top = Path(folder.parent.name, folder.name)
    with (
        atomic.replaced(file) as draft,
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
    ):
        for path in _content(folder):
            archive.write(path, top / path.relative_to(folder))
    return file


def _content(folder: Path) -> Iterator[Path]:
    """Yield the files that are not the report, which is made of the others, and are no drafts or links."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if parts[0] == REPORT or any(part.startswith(atomic.PREFIX) for part in parts):
            continue
        if path.is_symlink():
            warn(f"{path}: a symbolic link; it is left out of the pack")
        elif path.is_file():
            yield path


def is_packed(path: Path) -> bool:
    """Return whether a path is a file that ``pack`` may have written."""
    return path.is_file() and zipfile.is_zipfile(path)


def unpack(file: Path) -> Path:
    """Return the folder of a packed run or record in the cache; unpack it if it is not there yet.

    Raises:
        LabError: the file is damaged, does not hold one folder, or would unpack to too much.
        OSError: the cache cannot be written.
    """
    try:
        with file.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            _check_size(members, file)
            inside = _folder([member.filename for member in members], file)
            target = cached.place(PACKS, sha256(stream))
            if not target.is_dir():
                with atomic.filled(target) as draft:
                    archive.extractall(draft)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise LabError(f"{file}: it cannot be unpacked: {error}") from error
    return target / inside


def folder_of(path: Path) -> Path:
    """Return the folder of a path that may be a pack, or lead into one: ``run.zip/1-01-baseline``.

    Raises:
        LabError: the pack is damaged.
    """
    for file in (path, *path.parents):
        if is_packed(file):
            return unpack(file) / path.relative_to(file)
    return path


def is_unpacked(folder: Path) -> bool:
    """Return whether a folder is one that ``unpack`` returned, or is inside of one."""
    return cached.folder(PACKS).resolve() in folder.resolve().parents


def sha256(stream: BinaryIO) -> str:
    """Return the SHA-256 of a file's whole content."""
    stream.seek(0)
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _check_size(members: list[zipfile.ZipInfo], file: Path) -> None:
    """Refuse an archive that would unpack to too much. zipfile never unpacks more than a member declares.

    Raises:
        LabError: there are too many files, they are too large, or too well packed to be a run.
    """
    unpacked = sum(member.file_size for member in members)
    packed = max(1, file.stat().st_size)
    excess = None
    if any(member.compress_type not in COMPRESSIONS for member in members):
        raise LabError(f"{file}: it is compressed otherwise than `dasklab results pack` does it")
    if len(members) > MAX_FILES:
        excess = f"{len(members):,} files; at most {MAX_FILES:,}"
    elif unpacked > MAX_UNPACKED_BYTES:
        excess = f"{unpacked / 1e9:,.1f} GB; at most {MAX_UNPACKED_BYTES / 1e9:.1f} GB"
    elif unpacked > RATIO_APPLIES_BYTES and unpacked > MAX_PACKING_RATIO * packed:
        times = f"{unpacked // packed:,} times its size"
        excess = f"{times}, {unpacked / 1e9:,.1f} GB; at most {MAX_PACKING_RATIO} times"
    if excess:
        raise LabError(
            f"{file}: it would unpack to {excess} are unpacked",
            "if you trust it: unzip it, and name the folder",
        )


def _folder(names: list[str], file: Path) -> str:
    """Return the folder that all members of an archive are in.

    Raises:
        LabError: there is none, or a name leads out of the archive.
    """
    if any(name.startswith("/") or ".." in Path(name).parts for name in names):
        raise LabError(f"{file}: names in it lead out of it")
    folder = os.path.commonpath(names) if len(names) > 1 else ""
    if not folder:
        raise LabError(f"{file}: this is no packed run", "`dasklab results pack RUN` writes one")
    return folder

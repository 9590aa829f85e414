"""A run or a record as one file, and such a file opened again.

The file is a ZIP archive of the folder, without what is computed again from the rest. To open it, its content
is unpacked into the user's cache, once: the folder there is named after the content's checksums.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from dasklab import atomic, paths
from dasklab.errors import LabError
from dasklab.model.files import CaptureRecords, Records

SUFFIX = ".zip"
TABLES = {  # folders that are made of the files of the same names
    Path(name).stem for kind in (Records, CaptureRecords) for name in (kind.FILE, kind.PREVIOUS_FILE)
}
REPORT = "report"


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
    """Yield the files that are not made of others: no tables of records, no report, no drafts."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        derived = parts[0] == REPORT or TABLES & set(parts[:-1])
        if path.is_file() and not derived and not any(part.startswith(atomic.PREFIX) for part in parts):
            yield path


def is_packed(path: Path) -> bool:
    """Return whether a path is a file that ``pack`` may have written."""
    return path.is_file() and zipfile.is_zipfile(path)


def unpack(file: Path) -> Path:
    """Return the folder of a packed run or record in the cache; unpack it if it is not there yet.

    Raises:
        LabError: the file is damaged, or does not hold one folder.
        OSError: the cache cannot be written.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            sums = [(member.filename, member.CRC, member.file_size) for member in members]
            target = _cache() / hashlib.sha256(repr(sums).encode()).hexdigest()[:16]
            inside = _folder([member.filename for member in members], file)
            if not target.is_dir():
                with atomic.filled(target) as draft:
                    archive.extractall(draft)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise LabError(f"{file}: it cannot be unpacked: {error}") from error
    return target / inside


def is_unpacked(folder: Path) -> bool:
    """Return whether a folder is one that ``unpack`` returned, or is inside of one."""
    return _cache().resolve() in folder.resolve().parents


def _cache() -> Path:
    return paths.cache() / "packs"


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

"""What a simulation imports of dasklab, as an archive that travels, and what else decides its outcome."""

from __future__ import annotations

import hashlib
import io
import platform
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from dasklab.predict.engine.processes import PACKAGES

PARTS = ("sim", "model", "workloads")  # the packages that a simulation imports


@dataclass(frozen=True)
class SimulationCode:
    """A ZIP file of modules; equal modules and versions have equal identities."""

    archive: bytes

    @classmethod
    def installed(cls) -> SimulationCode:
        """Return the code of this installation."""
        content = io.BytesIO()
        package = Path(PACKAGES, "dasklab")
        files = [*package.glob("*.py"), *(file for part in PARTS for file in (package / part).rglob("*.py"))]
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(files):
                entry = zipfile.ZipInfo(file.relative_to(PACKAGES).as_posix())  # without the file's time
                archive.writestr(entry, file.read_bytes())
        return cls(content.getvalue())

    @property
    def identity(self) -> str:
        versions = " ".join(f"{name} {number}" for name, number in code_versions().items())
        return hashlib.sha256(self.archive + versions.encode()).hexdigest()[:16]


def code_versions() -> dict[str, str]:
    """Return the versions that decide an outcome besides the code of dasklab."""
    return {name: version(name) for name in ("dask", "distributed", "numpy")} | {
        "python": platform.python_version()
    }

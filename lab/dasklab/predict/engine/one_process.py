"""One simulation in a process of its own, here or on a worker of a Dask cluster.

This module travels to workers that do not have dasklab, so it imports nothing of it.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

LOOK_S = 0.2  # between two looks at whether the simulation is still wanted
CANCELLED = "cancelled"

ProcessResult = tuple[int, str, str]  # exit status, standard output, standard error


def run(document: str, seed: int, packages: str, is_cancelled: Callable[[], bool]) -> ProcessResult:
    """Run ``python -m dasklab.sim`` and wait for it; kill it when it is cancelled.

    Args:
        document: the scenario as JSON.
        seed: the process's hash seed, which orders Dask's sets.
        packages: the folder that holds the package ``dasklab``.
        is_cancelled: called several times a second.
    """
    if is_cancelled():
        return 1, "", CANCELLED
    folders = [packages, *filter(None, [os.environ.get("PYTHONPATH")])]
    with TemporaryFile("w+", encoding="utf-8") as scenario:
        # A pipe would be left half full: communicate() forgets what it has to send when it times out
        scenario.write(document)
        scenario.seek(0)
        with subprocess.Popen(
            [sys.executable, "-m", "dasklab.sim"],
            stdin=scenario,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Python imports from the working folder first; the caller's may be a run
            cwd=Path(packages, "dasklab", "workloads"),
            env=os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(folders)},
        ) as process:
            try:
                while not is_cancelled():
                    try:
                        output, errors = process.communicate(timeout=LOOK_S)
                    except subprocess.TimeoutExpired:
                        continue
                    return process.returncode, output, errors
            finally:
                process.kill()  # does nothing if the process has ended
    return 1, "", CANCELLED


def run_on_worker(document: str, seed: int, archive: str) -> ProcessResult:
    """Run a simulation as a task of Dask, with the code that was uploaded to this worker.

    Args:
        document: the scenario as JSON.
        seed: the process's hash seed.
        archive: name of the ZIP file that was uploaded, which holds the package ``dasklab``.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_cancelled() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    packages = unpack(Path(worker.local_directory), archive)
    return run(document, seed, str(packages), is_cancelled)


def unpack(folder: Path, archive: str) -> Path:
    """Unpack an archive in its folder, once for all threads of a worker; return the unpacked folder."""
    packages = folder / Path(archive).stem
    if not packages.exists():
        draft = folder / f"{packages.name}-{threading.get_ident()}"
        zipfile.ZipFile(folder / archive).extractall(draft)
        try:
            draft.rename(packages)
        except OSError:  # another thread was faster
            shutil.rmtree(draft)
    return packages


def missing_modules(names: list[str]) -> list[str]:
    """Return the modules that cannot be imported in this process."""
    from importlib.util import find_spec

    return [name for name in names if find_spec(name) is None]


def remove(archive: str, dask_worker: Any) -> None:
    """Remove an archive and what was unpacked of it from this worker."""
    folder = Path(dask_worker.local_directory)
    (folder / archive).unlink(missing_ok=True)
    shutil.rmtree(folder / Path(archive).stem, ignore_errors=True)


def scheduler_traits(dask_scheduler: Any) -> tuple[list[str], bool]:
    """Return the names of a scheduler's plugins, and whether its host belongs to a lab."""
    return list(dask_scheduler.plugins), Path("/etc/dask/dasklab.yaml").exists()

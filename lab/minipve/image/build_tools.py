"""How an image is worked on: in a directory that goes away, output logged, by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from minipve import process
from minipve.progress import Progress
from minipve.user_error import UserError

SPACE_GIB = 5


def run_logged(
    words: list[str],
    log: Path,
    told: Progress,
    environment: dict[str, str] | None = None,
    expected_lines: int = 1,
) -> None:
    """Run a long command, its output to ``log``; its lines tell how far it is."""
    env = {**os.environ, **(environment or {}), "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    lines: list[str] = []
    with (
        log.open("w") as file,
        subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                file.write(line)
                lines.append(line.strip())
                told(lines[-1], min(len(lines) / expected_lines, 1.0), None)
        except BaseException:
            child.terminate()  # mmdebstrap then unmounts and cleans up by itself
            raise
    if child.returncode != 0:
        raise UserError(f"{Path(words[0]).name} failed: {_complaint(lines)}", "\n  ".join(lines[-8:]))


def _complaint(lines: list[str]) -> str:
    """The line of a log that most likely says what is wrong."""
    marks = ("E:", "ERROR:", "error:")
    return next((line for line in lines if line.startswith(marks)), lines[-1] if lines else "no output")


@contextlib.contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """A directory that is removed on the way out, never across a mount that a killed child may have left."""
    path = Path(tempfile.mkdtemp(prefix=".build-", dir=parent))
    path.chmod(0o755)
    try:
        yield path
    finally:
        process.run(["rm", "-rf", "--one-file-system", path], timeout_s=300)


@contextlib.contextmanager
def alone(lock: Path, progress: Progress) -> Iterator[None]:
    """One build at a time for all of a user's labs; the second waits and then finds the image there."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is building the image: waiting", 0.0, None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def require_space(directory: Path) -> None:
    """Refuse before anything is written to a disk that will not hold it."""
    free_gib = shutil.disk_usage(directory).free / 2**30
    if free_gib < SPACE_GIB:
        raise UserError(
            f"the golden image needs {SPACE_GIB} GiB below {directory}, {free_gib:.1f} GiB are free",
            "free some space or set MINIPVE_CACHE to a directory on a larger disk",
        )

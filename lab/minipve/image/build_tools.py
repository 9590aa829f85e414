"""Tools for building an image: a logged command, a scratch directory, a lock, a check of the disk space."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from minipve.base import process
from minipve.base.errors import UserError
from minipve.base.process import Progress

SPACE_GIB = 5


def run_logged(
    words: list[str],
    log: Path,
    progress: Progress,
    environment: dict[str, str] | None = None,
    expected_lines: int = 1,
) -> None:
    """Run a long command with its output in a log file.

    Args:
        words: the command line.
        log: the file for its output.
        progress: called for each line of output.
        environment: variables to add.
        expected_lines: the usual number of lines of output, which stands for all of the work.

    Raises:
        UserError: the command failed; the message holds the line of its output that most likely says why.
    """
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
                progress(lines[-1], min(len(lines) / expected_lines, 1.0), None)
        except BaseException:
            child.terminate()  # mmdebstrap then unmounts and cleans up by itself
            raise
    if child.returncode != 0:
        raise UserError(f"{Path(words[0]).name} failed: {_error_line(lines)}", "\n  ".join(lines[-8:]))


def _error_line(lines: list[str]) -> str:
    prefixes = ("E:", "ERROR:", "error:")
    return next((line for line in lines if line.startswith(prefixes)), lines[-1] if lines else "no output")


@contextlib.contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """Yield a directory and remove it afterwards, without crossing a mount that a killed child left."""
    path = Path(tempfile.mkdtemp(prefix=".build-", dir=parent))
    path.chmod(0o755)
    try:
        yield path
    finally:
        process.run(["rm", "-rf", "--one-file-system", path], timeout_s=300)


@contextlib.contextmanager
def exclusive(lock: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock file: one build at a time for all instances of a user. A second process waits."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that is building the image", 0.0, None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def require_space(directory: Path) -> None:
    """UserError if the disk is too small for a build."""
    free_gib = shutil.disk_usage(directory).free / 2**30
    if free_gib < SPACE_GIB:
        raise UserError(
            f"the golden image needs {SPACE_GIB} GiB below {directory}, and {free_gib:.1f} GiB are free",
            "free some space, or set MINIPVE_CACHE to a directory on a larger disk",
        )

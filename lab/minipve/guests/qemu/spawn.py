"""Start a program that outlives the endpoint, and wait until it is ready or has ended.

QEMU can daemonize itself only in a sandbox that lets it fork. So ``setsid`` forks before it executes QEMU.
QEMU's output is a pipe, and the end of the output means that QEMU has ended. Once QEMU is ready we close
the pipe, so that no guest can fill the disk with QEMU's messages.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from minipve.base import process
from minipve.base.process import MachineError

_POLL_MS = 20
_MAX_OUTPUT_BYTES = 2**16


def start(words: Sequence[str], folder: Path, is_ready: Callable[[], bool], timeout_s: float) -> list[str]:
    """Start a program in a session of its own and return the lines that it printed until it was ready.

    Args:
        words: the command line.
        folder: the program's working directory.
        is_ready: called again and again.
        timeout_s: how long to wait.

    Raises:
        EndedError: the program ended before it was ready.
        MachineError: it is neither ready nor ended after ``timeout_s``. It keeps running.
    """
    process.require_tools("setsid", words[0])
    deadline, output = time.monotonic() + timeout_s, b""
    command = [str(process.which("setsid")), "--fork", str(process.which(words[0])), *words[1:]]
    with _forked(command, folder) as pipe:
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while True:
            if poll.poll(_POLL_MS):
                data = os.read(pipe, 4096)
                if not data:
                    raise EndedError(_lines(output))
                output = (output + data)[:_MAX_OUTPUT_BYTES]
            elif is_ready():
                return _lines(output)
            if time.monotonic() > deadline:
                raise MachineError(f"{words[0]} did not start: got timeout")


class EndedError(MachineError):
    """The program ended before it was ready; ``lines`` is its output."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("the program ended before it was ready")
        self.lines = lines


@contextmanager
def _forked(words: list[str], folder: Path) -> Iterator[int]:
    """Run ``words`` in ``folder`` and yield the file descriptor from which their output is read."""
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder
    ) as starter:
        assert starter.stdout is not None
        yield starter.stdout.fileno()


def _lines(output: bytes) -> list[str]:
    return output.decode(errors="replace").splitlines()

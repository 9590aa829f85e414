"""Start a program that outlives the endpoint, and wait until it is ready or has ended.

QEMU could become a daemon by itself, but only in a sandbox that lets it fork. So ``setsid`` forks before QEMU
begins, and QEMU's output is a pipe: its end is the end of QEMU. Once we close our side, what a running QEMU
has to say goes nowhere, so that no guest can fill the disk with it.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from minipve import process
from minipve.process import MachineError

_POLL_MS = 20
_MAX_OUTPUT_BYTES = 2**16


def start(words: Sequence[str], is_ready: Callable[[], bool], timeout_s: float) -> list[str]:
    """Start a program in a session of its own; returns the lines that it has printed when it is ready.

    Raises:
        EndedError: it ended first; the error has its lines.
        MachineError: it is neither ready nor ended after ``timeout_s``. It still runs.
    """
    process.need("setsid", words[0])
    deadline, output = time.monotonic() + timeout_s, b""
    with _forked([str(process.which("setsid")), "--fork", str(process.which(words[0])), *words[1:]]) as pipe:
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
    """The program ended before it was ready."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("the program ended before it was ready")
        self.lines = lines


@contextmanager
def _forked(words: list[str]) -> Iterator[int]:
    """Run ``words``; yields the end of the pipe from which their output is read."""
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/"
    ) as starter:
        assert starter.stdout is not None
        yield starter.stdout.fileno()


def _lines(output: bytes) -> list[str]:
    return output.decode(errors="replace").splitlines()

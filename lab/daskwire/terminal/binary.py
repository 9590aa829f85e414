"""Write binary output: a file as a whole, or standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from daskwire.base.errors import WireError

Produce = Callable[[IO[bytes]], int]


def write_file(path: Path, produce: Produce) -> int:
    """Write a file that appears when it is complete. Returns the result of ``produce``.

    Raises:
        WireError: the file cannot be written.
    """
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with draft.open("xb") as stream:
            result = produce(stream)
        draft.replace(path)
    except OSError as error:
        raise WireError(f"{path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return result


def write_stdout(produce: Produce) -> None:
    """Write to standard output. A reader that closes it early ends the output.

    Raises:
        WireError: standard output is a terminal.
    """
    if sys.stdout.isatty():
        raise WireError("standard output is a terminal; pipe it into a program: ... -o - | wireshark -k -i -")
    try:
        produce(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence_stdout()


def silence_stdout() -> None:
    """Discard what is still buffered for a reader that has left; Python would report that at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

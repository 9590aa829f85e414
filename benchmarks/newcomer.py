"""Time what a person does who has a fresh machine, a checkout and the README; as root.

    .venv/bin/python benchmarks/newcomer.py                       # explanation, capture, lab of containers
    .venv/bin/python benchmarks/newcomer.py --lab "make lab"      # five emulated machines instead

Each way begins with nothing installed but Python and apt, so the first two include the installation. Prints a
row for each: seconds, target, and the load of this machine before and after.
"""

from __future__ import annotations

import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--lab": ("make lab GUESTS=container", "the README's command for a lab"),
            "--print": (False, "print the README's commands instead of carrying them out"),
        },
        smallest="--print",
        needs=("root", "mmdebstrap"),
    )

from tests.newcomer import COMMANDS, Newcomer, block


def timed(what: str, target_s: float, steps: Callable[[], object], already_s: float = 0.0) -> float:
    """Carry steps out, print their row, and return their seconds with what was needed before."""
    load, start = os.getloadavg()[0], time.monotonic()
    steps()
    seconds = already_s + time.monotonic() - start
    met = "met" if seconds <= target_s else "missed"
    print(
        f"{what:<32}{seconds:6.0f} s   target {target_s:.0f} s: {met}   "
        f"load {load:.1f} to {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return seconds


def main(arguments: Namespace) -> None:
    if arguments.print:
        print(*(block(words) for words in (*COMMANDS, arguments.lab)), sep="\n")
        return
    with tempfile.TemporaryDirectory() as temporary:
        newcomer = Newcomer(Path(temporary, "root"))
        installing_s = timed("installation", 180, newcomer.install)
        timed("explanation of an own program", 180, newcomer.explain_own_program, installing_s)
        timed("decoded capture", 120, newcomer.decode_own_capture, installing_s)
        timed(arguments.lab, 480, lambda: newcomer.make(arguments.lab))
        newcomer.make("make destroy")


if __name__ == "__main__":
    main(ARGUMENTS)

"""The exit statuses of the commands that run trials."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit statuses of a command that runs trials."""

    OK = 0
    ERROR = 1
    USAGE = 2
    FAILED = 3
    INVALID = 4
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "every trial is ok, or is one that this lab cannot do (unsupported)",
    Exit.ERROR: "an error stopped the command",
    Exit.USAGE: "wrong arguments",
    Exit.FAILED: "at least one trial failed; the others count",
    Exit.INVALID: "no trial failed, at least one is invalid and does not count",
    Exit.INTERRUPTED: "interrupted (Ctrl-C); the same run can be resumed",
}
HELP = "\b\nExit status:\n" + "\n".join(f"  {status:<4d} {text}" for status, text in MEANINGS.items())

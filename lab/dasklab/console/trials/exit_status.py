"""The exit statuses of the commands that run trials."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    FAILED = 3
    INVALID = 4
    INTERRUPTED = 130


MEANINGS = {
    ExitStatus.OK: "all trials are ok, or unsupported by this lab",
    ExitStatus.ERROR: "an error stopped the command",
    ExitStatus.USAGE: "wrong arguments",
    ExitStatus.FAILED: "at least one trial failed; the others are valid results",
    ExitStatus.INVALID: "no trial failed; at least one is invalid and is left out of the results",
    ExitStatus.INTERRUPTED: "interrupted by Ctrl-C; to continue: dasklab run RUN",
}
HELP = "\b\nExit status:\n" + "\n".join(f"  {status:<4d} {text}" for status, text in MEANINGS.items())

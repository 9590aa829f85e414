"""What goes wrong inside the endpoint, in PVE's shape: status, message, errors by parameter."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from minipve.process import MachineError
from minipve.user_error import UserError

FAILURES = (MachineError, UserError, OSError, subprocess.SubprocessError)
"""What an operation may fail with beside an ApiError; its text is told to the caller."""


class ApiError(Exception):
    """An answer that is not 200: ``message`` is the body's text, its first line the reason phrase.

    ``errors`` maps parameter names to texts (PVE's ``Parameter verification failed.``).
    """

    def __init__(self, message: str, status: int = 500, errors: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message if message.endswith("\n") or status == 501 else message + "\n"
        self.status = status
        self.errors = errors

    @property
    def reason(self) -> str:
        """The first line: PVE puts it into the status line."""
        return self.message.split("\n", 1)[0]

    @property
    def detail(self) -> str:
        """The error as PVE tells it inside of another one, or as a task's last words: with its status."""
        lines = [self.message.rstrip("\n"), *(f"{key}: {text}" for key, text in (self.errors or {}).items())]
        return (f"{self.status} " if self.status != 500 else "") + "\n".join(lines)


@contextmanager
def error_prefix(what: str) -> Iterator[None]:
    """Put ``what`` before the text of an error of the block, which becomes a 500, as PVE does it."""
    try:
        yield
    except ApiError as refused:
        raise ApiError(what + refused.detail) from refused
    except FAILURES as failed:
        raise ApiError(what + text_of(failed)) from failed


def parameter_error(**errors: str) -> ApiError:
    """400 with one text per parameter; keyword names use ``_`` where PVE's have ``-``."""
    return ApiError(
        "Parameter verification failed.", 400, {k.replace("_", "-"): v for k, v in errors.items()}
    )


def denied(detail: str = "") -> ApiError:
    """403 as PVE words it, e.g. ``Permission check failed (/vms/100, VM.Audit)``."""
    return ApiError("Permission check failed" + (f" ({detail})" if detail else ""), 403)


def text_of(error: Exception) -> str:
    """An error of the system or of a helper as one sentence, without Python's way of putting it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: '{error.filename}'" if error.filename else error.strerror
    return str(error) or type(error).__name__


class UnreachedError(Exception):
    """The node that is meant does not answer: the proxy tells it, by a status line alone."""

    status, reason = 595, "No route to host"


class UnauthorizedError(Exception):
    """Refused before routing: PVE answers with a reason phrase, an empty body and three seconds of delay."""

    def __init__(self, reason: str, status: int = 401) -> None:
        super().__init__(reason)
        self.status = status

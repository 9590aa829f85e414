"""Errors in PVE's form, and errors that a user can fix."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

# The exception for errors that a user can fix. The command line shows it without a traceback.


class UserError(Exception):
    """An error and its place. ``hint`` is a command to run or a setting to change."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class MachineError(Exception):
    """An operation on a guest failed. The text is Proxmox VE's if it has one."""


# Errors in PVE's form: status, message, and texts by parameter.

FAILURES = (MachineError, UserError, OSError, subprocess.SubprocessError)
"""Other exceptions of an operation, whose text the caller receives."""


class ApiError(Exception):
    """An answer other than 200. ``message`` is the text of the body, and its first line the reason phrase.

    ``errors`` maps parameter names to texts (PVE's ``Parameter verification failed.``).
    """

    def __init__(self, message: str, status: int = 500, errors: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message if message.endswith("\n") or status == 501 else message + "\n"
        self.status = status
        self.errors = errors

    @property
    def reason(self) -> str:
        """The first line of the message, which PVE puts into the status line."""
        return self.message.split("\n", 1)[0]

    @property
    def detail(self) -> str:
        """The error as PVE quotes it in another error or at the end of a task's log: with its status."""
        lines = [self.message.rstrip("\n"), *(f"{key}: {text}" for key, text in (self.errors or {}).items())]
        return (f"{self.status} " if self.status != 500 else "") + "\n".join(lines)


@contextmanager
def error_prefix(prefix: str) -> Iterator[None]:
    """Turn an error of the block into a 500 whose text starts with ``prefix``, as PVE does."""
    try:
        yield
    except ApiError as refused:
        raise ApiError(prefix + refused.detail) from refused
    except FAILURES as failed:
        raise ApiError(prefix + text_of(failed)) from failed


def parameter_error(**errors: str) -> ApiError:
    """Return a 400 with a text per parameter."""
    return ApiError("Parameter verification failed.", 400, errors)


def denied(detail: str = "") -> ApiError:
    """Return PVE's 403, e.g. ``Permission check failed (/vms/100, VM.Audit)``."""
    return ApiError("Permission check failed" + (f" ({detail})" if detail else ""), 403)


def text_of(error: Exception) -> str:
    """Return the text of an error without the name of its Python class."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: '{error.filename}'" if error.filename else error.strerror
    return str(error) or type(error).__name__


class UnreachedError(Exception):
    """The target node is off. PVE's proxy answers with a status line only."""

    status, reason = 595, "No route to host"


class UnauthorizedError(Exception):
    """Authentication failed. PVE answers with a reason phrase, no body, and a delay of three seconds."""

    def __init__(self, reason: str, status: int = 401) -> None:
        super().__init__(reason)
        self.status = status

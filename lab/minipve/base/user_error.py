"""The exception for errors that a user can fix. The command line shows it without a traceback."""

from __future__ import annotations


class UserError(Exception):
    """An error and its place. ``hint`` is a command to run or a setting to change."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"

"""The error that a user of minipve can do something about; shown as one line, never as a traceback."""

from __future__ import annotations


class UserError(Exception):
    """What went wrong and where; ``hint`` is the line to run or the setting to change."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"

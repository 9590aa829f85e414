"""The one exception that a user sees: a line that says what, where, what is allowed and what to do."""

from __future__ import annotations


class LabError(Exception):
    """A mistake or a condition that the user can mend; shown as one line, never as a traceback.

    ``hint`` is the line that mends it (a command, a setting), printed below the message.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"

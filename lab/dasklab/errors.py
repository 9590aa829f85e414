"""The one exception that a user sees: a line that says what, where, what is allowed and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


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


def did_you_mean(word: object, allowed: Iterable[object]) -> str:
    """Return ``. Did you mean X?`` for the allowed word nearest to a misspelt one; empty if none is near."""
    near = get_close_matches(str(word), map(str, allowed), n=1)
    return f". Did you mean {near[0]}?" if near else ""

"""The one exception that a user sees, and suggestions for misspelt words."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class LabError(Exception):
    """A condition that the user can fix: shown as one line, never as a traceback.

    ``message`` states what is wrong, where, and which values are allowed. ``hint`` is the next step (a
    command or a setting); it is printed below the message.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


def did_you_mean(word: object, allowed: Iterable[object]) -> str:
    """Return ``. Did you mean X?`` with the allowed word nearest to a misspelt one, or an empty string."""
    matches = get_close_matches(str(word), map(str, allowed), n=1)
    return f". Did you mean {matches[0]}?" if matches else ""

"""The one exception that a user sees, suggestions for misspelt words, and how foreign text is printed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches

UNFORESEEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What Python raises where values of a stored file have a form that nobody foresaw."""


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
        return plain(self.message if self.hint is None else f"{self.message}\n  {self.hint}")


class DamagedError(LabError):
    """What somebody stored cannot be understood: it is damaged, or from a program that nobody foresaw."""


def plain(text: object) -> str:
    """Escape all characters that are not printable, except ends of lines.

    Names in a record, a run, an inventory or an answer of an API may be anybody's: they must not control a
    terminal, ring, or reverse the direction of writing. Printers call this, not those who make a text. The
    escapes are those of JSON, too, so JSON stays what it is.
    """
    result = str(text)
    if result.isprintable():
        return result
    result = "".join(c if c.isprintable() or c in "\n\x7f" else json.dumps(c)[1:-1] for c in result)
    return result.replace("\x7f", "\\u007f")  # which JSON's writer leaves as it is


def did_you_mean(word: object, allowed: Iterable[object]) -> str:
    """Return ``. Did you mean X?`` with the allowed word nearest to a misspelt one, or an empty string."""
    matches = get_close_matches(str(word), map(str, allowed), n=1)
    return f". Did you mean {matches[0]}?" if matches else ""

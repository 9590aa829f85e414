"""The note that says who is using a lab on a node: the last line of a guest's description. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

_LINE = re.compile(
    r"\n?in use by (.+) until (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) \(([0-9a-f]+) at ([0-9a-f]+)\)\s*"
)
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class LabNote:
    """Who is using a lab, and until when at most."""

    owner: str
    """User, machine and command, in one line."""

    until: float
    """Seconds since 1970 on the node's clock. The owner renews the note while it works."""

    key: str
    """Identifies the command. Hexadecimal."""

    place: str
    """Identifies the lock file that the command holds as well. Hexadecimal."""

    def __str__(self) -> str:
        until = datetime.fromtimestamp(self.until, timezone.utc).strftime(_TIME)
        return f"in use by {self.owner} until {until} ({self.key} at {self.place})"


def read(description: str) -> LabNote | None:
    """Return the note in a description."""
    line = _LINE.search(description)
    if not line:
        return None
    until = datetime.strptime(line[2], _TIME).replace(tzinfo=timezone.utc).timestamp()
    return LabNote(line[1], until, line[3], line[4])


def without(description: str) -> str:
    """Return a description without its note."""
    return _LINE.sub("", description).strip()


def with_note(description: str, note: LabNote) -> str:
    """Return a description with this note as its last line, in place of another note."""
    return f"{without(description)}\n{note}".lstrip()

"""Check a commit message: a subject of at most 60 characters, an empty line, and a body that says why.

python tests/commit_message.py FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

MOST = 60


def fault(message: str) -> str | None:
    """Return what is wrong with a message, or None."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject, *rest = lines or [""]
    if len(subject) > MOST:
        return f"the subject has {len(subject)} characters; at most {MOST} are allowed"
    if rest and rest[0]:
        return "the second line is not empty; the body begins in the third"
    if not any(line.strip() for line in rest):
        return "there is no body; say in it why the change was made"
    return None


if __name__ == "__main__":
    if text := fault(Path(sys.argv[1]).read_text(encoding="utf-8")):
        sys.exit(f"commit message: {text}")

"""Escape text from captures, which is untrusted."""

from __future__ import annotations


def plain(text: object) -> str:
    """Escape all characters that are not printable.

    These are controls (C0, DEL, C1), bidirectional and other invisible formatting, line and paragraph
    separators, and surrogates. The result is one line.
    """
    result = str(text)
    if result.isprintable():
        return result
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in result)

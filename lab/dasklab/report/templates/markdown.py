"""Texts of a run in Markdown. They may be anybody's: no HTML, no markup, no terminal escapes, one line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dasklab.errors import plain

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKUP = re.compile(r"[\\`*\[\]|]")


class Markdown(str):
    """Text that is escaped already."""

    __slots__ = ()


def escape(value: object) -> str:
    """Return a text that Markdown shows as it is."""
    if isinstance(value, Markdown):
        return value
    text = _MARKUP.sub(r"\\\g<0>", plain(" ".join(str(value).split())))
    return Markdown("".join(_ENTITIES.get(character, character) for character in text))


def code(value: object) -> Markdown:
    """Return a text between backticks, where only a backtick and, in tables, a bar have a meaning."""
    text = plain(" ".join(str(value).split())).replace("`", "'").replace("|", "/")
    return Markdown(f"`{text}`")


def cells(values: Iterable[object]) -> Markdown:
    """Return the cells of a row, with bars between them."""
    return Markdown(" | ".join(map(escape, values)))


def codes(values: Iterable[object]) -> Markdown:
    """Return a list of names, each between backticks."""
    return Markdown(", ".join(map(code, values)))

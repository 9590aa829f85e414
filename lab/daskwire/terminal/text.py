"""The one way out: all that the command writes passes here, because captures hold what strangers wrote.

A task's key, an op or a worker's name may carry terminal escapes, markup of the library that draws our
tables, or characters that turn the direction of writing. Here each such character becomes the escape that
Python would write for it, and markup is never looked for. A test sees to it that nothing else in this room
writes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.progress import Progress
from rich.text import Text


def plain(text: object) -> str:
    """The text on one line, with everything that is no letter, digit, sign or plain space escaped: controls
    (C0, DEL, C1), bidirectional and other invisible formatting, line and paragraph separators, surrogates.
    """
    said = str(text)
    if said.isprintable():
        return said
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in said)


def cell(text: object) -> Text:
    """Text for a table that is drawn, taken literally."""
    return Text(plain(text))


def say(line: object = "", err: bool = False) -> None:
    """Write a line."""
    click.echo(plain(line), err=err)


def say_json(value: Any) -> None:
    """Write JSON in ASCII; the one control character that JSON itself lets through is DEL."""
    click.echo(json.dumps(value).replace("\x7f", "\\u007f"))


def draw(what: RenderableType) -> None:
    """Draw on a terminal something that is made of ``cell``."""
    Console(markup=False, highlight=False, emoji=False).print(what)


def on_terminal() -> bool:
    """Whether someone looks at what is written, rather than a program."""
    return sys.stdout.isatty()


def bar(shown: bool) -> Progress:
    """A progress bar on stderr, gone at the end."""
    return Progress(console=Console(stderr=True), disable=not shown, transient=True)

"""The only output channel of the command: it makes untrusted text from captures harmless.

A task key, an op or a worker's name may contain terminal escapes, markup of the library that draws tables, or
characters that change the writing direction. Each such character is replaced by its Python escape, and
markup is never interpreted. A test ensures that no other module of this package writes output.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.text import Text

from daskwire.base.printable import plain


def escape_what_the_console_lacks() -> None:
    """Print an escape such as ``\\u2192`` for a character that the console's encoding lacks, never fail."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def cell(text: object) -> Text:
    """Return literal text for a table that is drawn on a terminal."""
    return Text(plain(text))


def write_line(line: object = "", err: bool = False) -> None:
    click.echo(plain(line), err=err)


def write_text(text: object, start: str = "", indent: str = "") -> None:
    """Write a line. On a terminal it is wrapped between words, and what follows is indented."""
    line = start + plain(text)
    if on_terminal():
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    click.echo(line)


def write_json(value: Any) -> None:
    """Write JSON in ASCII. DEL is escaped here because the JSON encoder does not escape it."""
    click.echo(json.dumps(value).replace("\x7f", "\\u007f"))


def draw(table: RenderableType) -> None:
    """Draw a table whose texts were made by ``cell``."""
    Console(markup=False, highlight=False, emoji=False).print(table)


def on_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def progress_bar(visible: bool) -> Progress:
    """Create a progress bar on stderr that disappears when it is finished."""
    return Progress(console=Console(stderr=True), disable=not visible, transient=True)


@contextmanager
def screen(visible: bool) -> Iterator[Callable[[RenderableType], None] | None]:
    """Yield a function that redraws the screen; None if the screen is not visible."""
    if not visible:
        yield None
        return
    with Live(console=Console(markup=False, highlight=False, emoji=False), auto_refresh=False) as display:
        yield lambda content: display.update(content, refresh=True)

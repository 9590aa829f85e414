"""The only output of commands: lines, errors as one line, warnings, tables; and durations and counts.

What is printed may come from anybody, so each printer here escapes it (`dasklab.errors.plain`). A test
ensures that no other module writes output.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from dasklab import extras
from dasklab.errors import DamagedError, LabError, did_you_mean, plain
from dasklab.notices import LOGGER

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

INDENT = "  "  # of what follows the first line of an error
UNLIMITED = 100_000  # columns where output goes to a file or a pipe: a row is never wrapped


class CommandError(click.ClickException):
    """An error as the terminal shows it: one line and, indented below it, the next step."""

    def show(self, file: IO[Any] | None = None) -> None:
        width = console(sys.stderr).width
        lines = plain(f"dasklab: {self.message}").split("\n")
        text = "\n".join(wrapped(line, width, INDENT) for line in lines)
        click.secho(text, fg="red", err=True, color=colour())


class CommandLineError(CommandError):
    """The command line cannot be parsed."""

    exit_code = click.UsageError.exit_code


class UnreadableError(CommandError):
    """What somebody stored is damaged, or cannot be read."""

    exit_code = 3


class StoppedError(CommandError):
    """The user stopped the command with Ctrl-C."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__("stopped\n  give the same command again to continue")


def colour() -> bool | None:
    """Return False if the environment forbids colours (no-color.org), else None: click decides."""
    return False if os.environ.get("NO_COLOR") else None


@contextmanager
def one_line_errors(*expected: type[Exception]) -> Iterator[None]:
    """Show usage errors, failed file operations and ``expected`` exceptions as one line, without a traceback.

    The exit status is 2 if the command line cannot be parsed, 3 if what is read is damaged, 130 after Ctrl-C,
    else 1.
    """
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:  # its text is the help
        raise
    except click.UsageError as error:
        help_command = f"\n  {error.ctx.command_path} --help" if error.ctx else ""
        raise CommandLineError(f"{error.format_message()}{help_command}") from None
    except expected as error:
        kind = UnreadableError if isinstance(error, DamagedError) else CommandError
        raise kind(str(error)) from None
    except KeyboardInterrupt:
        raise StoppedError from None
    except BrokenPipeError:  # the reader of our output is gone; click exits without a message
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"{error.filename}: {reason}" if error.filename else reason) from None


class _WarningHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        echo(f"dasklab: {record.getMessage()}", fg="yellow", err=True)


def escape_what_the_console_lacks() -> None:
    """Print an escape such as ``\\u2192`` for a character that the console's encoding lacks, never fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_warnings() -> None:
    """Print the warnings of `dasklab.notices` on stderr from now on."""
    if not LOGGER.handlers:
        LOGGER.addHandler(_WarningHandler())


class CommandGroup(click.Group):
    """A group of commands that shows errors as one line, and corrects a misspelt command."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        escape_what_the_console_lacks()
        with one_line_errors():
            context = super().make_context(*args, **kwargs)
        context.color = colour()
        return context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and (hint := did_you_mean(name, self.list_commands(ctx))):
            ctx.fail(f"No such command {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line_errors(LabError):
            try:
                return super().invoke(ctx)
            except ModuleNotFoundError as error:
                raise extras.missing(error) or error from None


def treat_sigterm_as_ctrl_c() -> None:
    """Make SIGTERM raise KeyboardInterrupt, so that a terminated command also cleans up the machines."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def echo(text: object = "", *, err: bool = False, nl: bool = True, **style: Any) -> None:
    """Print lines as they are; ``style`` is that of `click.style`."""
    click.secho(plain(text), err=err, nl=nl, **style)


def print_prose(text: str) -> None:
    """Print sentences. A terminal wraps them between words, never within a path.

    Elsewhere each paragraph is one line.
    """
    click.echo(prose(text))


def prose(text: str) -> str:
    """Return sentences as standard output takes them: see `print_prose`."""
    width = console(sys.stdout).width
    return "\n".join(
        wrapped(paragraph, width, " " * (len(paragraph) - len(paragraph.lstrip(" -"))))
        for paragraph in plain(text).split("\n")
    )


def wrapped(text: str, width: int, indent: str) -> str:
    """Return one paragraph wrapped between words; lines after the first begin with ``indent``."""
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def print_table(heads: Iterable[str], rows: Iterable[Iterable[str]], title: str = "") -> None:
    """Print a table. A terminal folds long cells; elsewhere each row is one line. Nothing is cut off."""
    console(sys.stdout).print(make_table(heads, rows, title))


def table_text(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table as standard output takes it: see `print_table`."""
    to = console(sys.stdout)
    with to.capture() as captured:
        to.print(make_table(heads, rows))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def make_table(
    heads: Iterable[str], rows: Iterable[Iterable[str]], title: str = "", right: Container[str] = ()
) -> Table:
    """Return a table; the columns below ``right`` heads are aligned on the right."""
    from rich.table import Table

    title_cell = cell(title) if title else None
    table = Table(box=None, pad_edge=False, title=title_cell, title_justify="left")
    for head in heads:
        table.add_column(cell(head), overflow="fold", justify="right" if head in right else "left")
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def cell(text: str, style: str = "") -> Text:
    """Return literal text for what rich draws."""
    from rich.text import Text

    return Text(plain(text), style)


def console(file: IO[str]) -> Console:
    """Return a console for ``file`` that is as wide as its terminal, or unlimited if it is not a terminal."""
    from rich.console import Console

    return Console(file=file, width=None if file.isatty() else UNLIMITED, highlight=False)


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done; elsewhere nothing. Yields what changes the text."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with console(sys.stderr).status("") as status:
        yield lambda text: status.update(cell(text))


def duration(seconds: float) -> str:
    """Return a duration for people: ``58 s``, ``1 min 5 s``, ``2 h 5 min``."""
    seconds_in_all = round(seconds)
    if seconds_in_all < 60:
        return f"{seconds_in_all} s"
    minutes, rest_s = divmod(seconds_in_all, 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s" if rest_s else f"{minutes} min"
    hours, rest_min = divmod(minutes, 60)
    return f"{hours} h {rest_min} min" if rest_min else f"{hours} h"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 trial``, ``2 trials``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def data_size(nbytes: float) -> str:
    """Return a number of bytes for people, never 0 of a larger unit: ``238 bytes``, ``12 kB``, ``3.4 MB``."""
    if nbytes < 1e3:
        return counted(round(nbytes), "byte")
    if nbytes < 1e6:
        return f"{nbytes / 1e3:.0f} kB"
    return f"{nbytes / 1e6:.2g} MB" if nbytes < 9.5e6 else f"{nbytes / 1e6:,.0f} MB"


def enumerated(names: Sequence[str]) -> str:
    """Return names as in a sentence: ``client, worker-1 and worker-2``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))

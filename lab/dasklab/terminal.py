"""What all commands share on a terminal: a mistake is one line, and a table is whole."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from dasklab import extras
from dasklab.errors import LabError, did_you_mean
from dasklab.notices import LOGGER

if TYPE_CHECKING:
    from rich.console import Console

ENDLESS = 100_000  # columns when no terminal reads along: a row is a line, whatever is in it


class Failure(click.ClickException):
    """A mistake on its way to the terminal: the line and, indented below it, what to do."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on stderr."""
        click.secho(f"dasklab: {self.message}", fg="red", err=True, color=colour())


class Misuse(Failure):
    """A command line that cannot be understood."""

    exit_code = click.UsageError.exit_code


def colour() -> bool | None:
    """False where the environment asks for none (no-color.org), else None: a terminal gets colours."""
    return False if os.environ.get("NO_COLOR") else None


@contextmanager
def one_line(*mistakes: type[Exception]) -> Iterator[None]:
    """Show what the user can mend as one line, never as a traceback: ``mistakes``, and files that fail.

    A command line that cannot be understood ends with status 2, as everywhere.
    """
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:  # its text is the help
        raise
    except click.UsageError as error:
        command = f"\n  {error.ctx.command_path} --help" if error.ctx else ""
        raise Misuse(f"{error.format_message()}{command}") from None
    except mistakes as error:
        raise Failure(str(error)) from None
    except BrokenPipeError:  # nobody reads any more: click ends quietly
        raise
    except OSError as error:
        why = error.strerror or str(error)
        raise Failure(f"{error.filename}: {why}" if error.filename else why) from None


class _Warnings(logging.Handler):
    """Prints what was left out on stderr, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one warning."""
        click.secho(f"dasklab: {record.getMessage()}", fg="yellow", err=True)


def print_warnings() -> None:
    """Print warnings (`dasklab.notices`) on stderr from now on."""
    if not LOGGER.handlers:
        LOGGER.addHandler(_Warnings())


class Group(click.Group):
    """A group of commands whose mistakes are told in one line."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the group's own options."""
        with one_line():
            context = super().make_context(*args, **kwargs)
        context.color = colour()
        return context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was named, or suggest another."""
        name = args[0]
        if self.get_command(ctx, name) is None and (meant := did_you_mean(name, self.list_commands(ctx))):
            ctx.fail(f"No such command {name!r}{meant}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        with one_line(LabError):
            try:
                return super().invoke(ctx)
            except ModuleNotFoundError as error:
                raise extras.missing(error) or error from None


def terminate_as_ctrl_c() -> None:
    """Let SIGTERM end this process as Ctrl-C does: what it began on the machines is cleared."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def print_table(heads: Iterable[str], rows: Iterable[Iterable[str]], title: str = "") -> None:
    """Print a table: on a terminal long texts are folded, elsewhere each row is one line. Nothing is cut."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for head in heads:
        table.add_column(Text(head), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console(sys.stdout).print(table)


def console(file: IO[str]) -> Console:
    """What prints on ``file``: as wide as its terminal, or endless where there is none."""
    from rich.console import Console

    return Console(file=file, width=None if file.isatty() else ENDLESS, highlight=False)


def clock(seconds: float) -> str:
    """``1:05``, ``2:00:00``: a length of time as people read it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

"""Error reports of minipve's commands: one line on stderr, and a hint below it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import IO, Any

import click

from minipve.base.errors import MachineError, UserError

PREFIX = "minipve: "


class Failure(click.ClickException):
    """An error of a command; the exit status is 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        colour = False if os.environ.get("NO_COLOR") else None  # no-color.org; None: colours on a terminal
        click.secho(f"{PREFIX}{self.message}", fg="red", err=True, color=colour)


class Misuse(Failure):
    """An invalid command line."""

    exit_code = click.UsageError.exit_code


class Stopped(Failure):
    """The user stopped the command with Ctrl-C."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__("stopped\n  give the same command again to continue")


@contextmanager
def one_line() -> Iterator[None]:
    """Report errors that a user can fix as one line, without a traceback."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:  # its message is the help text
        raise
    except click.UsageError as error:
        command = f"\n  {error.ctx.command_path} --help" if error.ctx else ""
        raise Misuse(f"{error.format_message()}{command}") from None
    except (UserError, MachineError) as error:
        raise Failure(str(error)) from None
    except KeyboardInterrupt:
        raise Stopped from None
    except BrokenPipeError:  # the reader of our output has ended; click exits quietly
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failure(f"{error.filename}: {reason}" if error.filename else reason) from None


class Group(click.Group):
    """A group of commands that reports errors without tracebacks, and suggests the nearest command."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the options of the group itself."""
        with one_line():
            return super().make_context(*args, **kwargs)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = get_close_matches(args[0], self.list_commands(ctx), n=1)
        if near and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line():
            return super().invoke(ctx)

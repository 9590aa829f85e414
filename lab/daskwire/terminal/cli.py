"""The command ``wire``: tables for a terminal, JSON for programs; results on stdout, the rest on stderr."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from daskwire.capture import Capture
from daskwire.errors import WireError
from daskwire.schema import TABLES
from daskwire.tables.exchange import exchange
from daskwire.tables.export import refuse_unwritable, rows, write_parquet
from daskwire.tables.problems import slowest
from daskwire.tables.summary import summarise
from daskwire.terminal.arguments import Asked, arguments, open_asked
from daskwire.terminal.printing import print_summary, print_table
from daskwire.terminal.text import say, say_json
from daskwire.terminal.watch import watch


class MistakeError(click.ClickException):
    """What a user can mend, in one line."""

    def show(self, file: Any = None) -> None:
        """Write the line on stderr."""
        say(f"daskwire: {self.message}", err=True)


class Commands(click.Group):
    """``wire FILE`` means ``wire summary FILE``; whatever is wrong is one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command where none is named, unless one was meant."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            meant = get_close_matches(args[0], self.commands, 1)
            if meant and not args[0].startswith("-") and not Path(args[0]).exists():
                raise MistakeError(f"{args[0]}: no such file, and no such command; did you mean {meant[0]}?")
            args = ["summary", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was chosen."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise MistakeError(error.format_message()) from None
        except WireError as error:
            raise MistakeError(str(error)) from None


@click.group(cls=Commands, no_args_is_help=True)
def wire() -> None:
    """What Dask said, from packets alone.

    FILES are captures of one cluster: pcap or pcapng, also .gz and .zst. `wire FILE` gives a summary.
    """


def _answer(asked: Asked, name: str, show: Callable[[Capture], None]) -> None:
    """Parquet where it was asked for, else what the command shows."""
    if asked.parquet:
        refuse_unwritable(asked.parquet)
    capture = open_asked(asked)
    if not asked.parquet:
        show(capture)
        return
    for path in write_parquet(capture, asked.parquet, None if name == "summary" else [name]):
        say(path)


def _show(capture: Capture, name: str, asked: Asked) -> None:
    table = capture.table(name)
    if asked.as_json:
        say_json({"schema": 1, "table": name, "columns": TABLES[name], "rows": rows(table)})
        return
    number = len(next(iter(table.values())))
    print_table(table, name, capture.tally.begin_ns, asked.limit)
    if asked.limit is not None and number > asked.limit:
        say(f"{asked.limit} of {number} rows; --limit 0 shows all", err=True)


def _command(name: str, text: str) -> None:
    def run(asked: Asked) -> None:
        _answer(asked, name, lambda capture: _show(capture, name, asked))

    run.__name__, run.__doc__ = name, text
    wire.command(name)(arguments(run))


for _name, _text in {
    "messages": "Every message: when, who, what, how large.",
    "ops": "Every op, those in batches included.",
    "tasks": "Each task: sent, started, stopped, reported.",
    "transfers": "Each movement of data between nodes, by step.",
    "parts": "Each object that was moved: size, dtype, shape, compression.",
    "matrix": "Traffic by pair of nodes.",
    "series": "Traffic by pair of nodes and second.",
    "composition": "What each node says: ops by sender.",
    "gaps": "Idle time between the tasks of each worker thread.",
    "packets": "Packets by sender, and whether offloads shaped them.",
    "flows": "How TCP fared: losses, RTT, windows, completeness.",
}.items():
    _command(_name, _text)


@wire.command()
@arguments
def heartbeats(asked: Asked) -> None:
    """Each worker's heartbeats; the first is drawn packet by packet."""

    def show(capture: Capture) -> None:
        if not asked.as_json:
            for line in _first_beat(capture):
                say(line)
            say()
        _show(capture, "heartbeats", asked)

    _answer(asked, "heartbeats", show)


def _first_beat(capture: Capture) -> list[str]:
    for message, _, _ in capture.decoded("heartbeat_worker"):
        return exchange(capture, message)
    return ["no heartbeat in this capture"]


@wire.command()
@arguments
@click.option("--follow", is_flag=True, help="Watch one growing file: ops per second until Ctrl-C.")
def summary(asked: Asked) -> None:
    """What is in a capture, how complete it is, and the figures most asked for."""
    if asked.follow:
        _follow(asked)
        return

    def show(capture: Capture) -> None:
        said = summarise(capture)
        if asked.as_json:
            say_json({"schema": 1, **said})
        else:
            print_summary(capture, said)

    _answer(asked, "summary", show)


@wire.command()
@arguments
def problems(asked: Asked) -> None:
    """What is wrong here: late heartbeats, failed connects, losses ... and the slowest transfers."""

    def show(capture: Capture) -> None:
        found, moved = capture.table("problems"), slowest(capture)
        if asked.as_json:
            form = {"schema": 1, "table": "problems", "columns": TABLES["problems"]}
            say_json({**form, "rows": rows(found), "slowest_transfers": rows(moved)})
            return
        if found["problem"]:
            _show(capture, "problems", asked)
        else:
            say("nothing found")
        if moved["kind"]:
            say()
            print_table(moved, "slowest transfers", capture.tally.begin_ns)

    _answer(asked, "problems", show)


def _follow(asked: Asked) -> None:
    if len(asked.files) != 1:
        raise WireError("--follow watches exactly one file")
    if asked.since or asked.until or asked.node or asked.key_log or asked.as_json or asked.parquet:
        raise WireError("--follow goes with no other option")
    watch(asked.files[0])

"""The commands: tables for a terminal, JSON for programs. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from daskwire.analysis.problems.detect import Answer, judge
from daskwire.analysis.tables.export import refuse_unwritable, rows, write_annotated, write_parquet
from daskwire.analysis.tables.summary import summarise
from daskwire.analysis.tables.traffic import exchange
from daskwire.base.errors import ArgumentError, WireError
from daskwire.base.schema import TABLES
from daskwire.decoder.capture import Capture
from daskwire.decoder.file.tcpdump import SNAPLEN_BYTES
from daskwire.terminal.arguments import (
    DISSECTOR,
    TUNNEL,
    Options,
    arguments,
    capture_arguments,
    install_dissector,
    open_files,
    silence_stdout,
    tunnel_ports,
    write_file,
    write_stdout,
)
from daskwire.terminal.live import Settings
from daskwire.terminal.live import live as show_live
from daskwire.terminal.printing import (
    escape_what_the_console_lacks,
    print_problems,
    print_summary,
    print_table,
    write_json,
    write_line,
)

GONE_OPTIONS = {
    # gone in 0.2, printed until 0.3
    "--follow": "'daskwire live FILE' shows a capture while it grows",
}
CRASHED = 70  # an error in daskwire itself; Python's own 1 means "problems found"
READER_LEFT = 141  # what a shell reports of a program that SIGPIPE ended
EXIT_CODES_OF_PROBLEMS = {Answer.NO_PROBLEM: 0, Answer.PROBLEMS: 1, Answer.NOTHING_TO_JUDGE: 4}


class UserError(click.ClickException):
    """An invalid argument, printed as one line."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        write_line(f"daskwire: {self.message}", err=True)


class UnreadableError(UserError):
    """A file cannot be read or written."""

    exit_code = 3


class StoppedError(UserError):
    """The user stopped the command with Ctrl-C."""

    exit_code = 130


def exit_after_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an error in daskwire itself, and exit with a status that means nothing else."""
    sys.__excepthook__(kind, error, trace)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(CRASHED)


class Commands(click.Group):
    """``daskwire FILE`` means ``daskwire summary FILE``. Every error is one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command if none is named, except for a likely typing error."""
        escape_what_the_console_lacks()
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            similar = get_close_matches(args[0], self.commands, 1)
            if similar and not args[0].startswith("-") and not Path(args[0]).exists():
                raise UserError(f"{args[0]}: no such file or command; did you mean {similar[0]}?")
            args = ["summary", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise UserError(_no_such_option(error)) from None
        except click.UsageError as error:
            raise UserError(error.format_message()) from None
        except ArgumentError as error:
            raise UserError(str(error)) from None
        except WireError as error:
            raise UnreadableError(str(error)) from None
        except KeyboardInterrupt:
            raise StoppedError("stopped") from None
        except BrokenPipeError:  # click would exit with 1, which means "problems found"
            silence_stdout()
            ctx.exit(READER_LEFT)


def _no_such_option(error: click.NoSuchOption) -> str:
    instead = GONE_OPTIONS.get(error.option_name)
    return f"{error.option_name} is gone: {instead}" if instead else error.format_message()


@click.group(cls=Commands, no_args_is_help=True)
def wire() -> None:
    """Decode Dask messages from packet captures.

    FILES are captures of one cluster: pcap or pcapng, also compressed (gz, bz2, xz, zst); a FIFO; a directory
    of captures; or - for standard input, as in `tcpdump -w - | daskwire -`. `daskwire FILE` prints a summary.
    """


def _run(options: Options, name: str, show: Callable[[Capture], None]) -> Capture:
    """Open the capture, then write Parquet files if requested, else show the result."""
    if options.parquet:
        refuse_unwritable(options.parquet)
    capture = open_files(options)
    if not options.parquet:
        show(capture)
        return capture
    for path in write_parquet(capture, options.parquet, None if name == "summary" else [name]):
        write_line(path)
    return capture


def _show(capture: Capture, name: str, options: Options) -> None:
    table = capture.table(name)
    if options.as_json:
        write_json({"schema": 1, "table": name, "columns": TABLES[name], "rows": rows(table)})
        return
    number = len(next(iter(table.values())))
    print_table(table, name, capture.tally.begin_ns, options.limit)
    if options.limit is not None and number > options.limit:
        write_line(f"{options.limit} of {number} rows; --limit 0 prints all", err=True)


def _command(name: str, text: str) -> None:
    def run(options: Options) -> None:
        _run(options, name, lambda capture: _show(capture, name, options))

    run.__name__, run.__doc__ = name, text
    wire.command(name)(arguments(run))


for _name, _text in {
    "messages": "List all messages: time, sender, receiver, kind, size.",
    "ops": "List all ops, including those in batches.",
    "tasks": "List tasks: when each was sent, started, stopped and reported.",
    "transfers": "List data transfers between nodes, with the time of each step.",
    "parts": "List transferred objects: size, dtype, shape, compression.",
    "nodes": "List schedulers, workers and clients: what each announced, whether it joined, how it left.",
    "reach": "Show which node could connect to which address, and the RTT between them.",
    "matrix": "Show the traffic of each pair of nodes.",
    "series": "Show the traffic of each pair of nodes per second.",
    "composition": "Count the ops of each sender.",
    "gaps": "List idle time between the tasks of each worker thread.",
    "packets": "Count packets by sender, and detect offloads.",
    "flows": "Show TCP figures per flow: losses, RTT, windows, completeness.",
}.items():
    _command(_name, _text)


@wire.command()
@arguments
def heartbeats(options: Options) -> None:
    """List the workers' heartbeats, and show the first one packet by packet."""

    def show(capture: Capture) -> None:
        if not options.as_json:
            for line in _first_heartbeat(capture):
                write_line(line)
            write_line()
        _show(capture, "heartbeats", options)

    _run(options, "heartbeats", show)


def _first_heartbeat(capture: Capture) -> list[str]:
    for message, _, _ in capture.decoded("heartbeat_worker"):
        return exchange(capture, message)
    return ["no heartbeat in this capture"]


@wire.command()
@arguments
def summary(options: Options) -> None:
    """Summarise a capture: content, completeness, nodes, problems, traffic, slowest transfers, times."""

    def show(capture: Capture) -> None:
        summary = summarise(capture)
        if options.as_json:
            write_json({"schema": 1, **summary})
        else:
            print_summary(capture, summary)

    _run(options, "summary", show)


@wire.command()
@arguments
def problems(options: Options) -> None:
    """Say what is wrong with the network, the cluster or the capture, ranked by what it cost.

    Exit code: 0 no problem found, 1 problems found, 2 invalid arguments, 3 unreadable file, 4 nothing to
    judge, 70 an error in daskwire itself.
    """

    def show(capture: Capture) -> None:
        verdict = judge(capture)
        if options.as_json:
            table = capture.table("problems")
            answer = {
                "answer": verdict.answer.value,
                "reasons": verdict.reasons,
                "basis": asdict(verdict.basis),
            }
            head = {"schema": 1, "table": "problems", **answer}
            write_json({**head, "columns": TABLES["problems"], "rows": rows(table)})
        else:
            print_problems(capture.table("problems"), verdict, capture.tally.begin_ns, options.limit)

    capture = _run(options, "problems", show)
    click.get_current_context().exit(EXIT_CODES_OF_PROBLEMS[judge(capture).answer])


@wire.command()
@capture_arguments
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), required=True, metavar="FILE",
    help="The pcapng file to write; - is standard output.",
)  # fmt: skip
def export(options: Options) -> None:
    """Copy the packets to a pcapng file, with the Dask messages as comments.

    Wireshark shows the comments in the packet details; the display filter frame.comment selects the packets.
    """
    capture = open_files(options)
    if options.output is None or str(options.output) == "-":
        write_stdout(lambda stream: write_annotated(capture, stream))
        return
    number = write_file(options.output, lambda stream: write_annotated(capture, stream))
    write_line(f"{options.output}: {capture.packets:,} packets, {number:,} comments")


@wire.command()
@click.argument("source")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds between two updates.",
)
@click.option(
    "--window",
    type=click.FloatRange(min=1),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Look for problems in the last seconds.",
)
@click.option(
    "--snaplen",
    type=click.IntRange(0, 262_144),
    default=SNAPLEN_BYTES,
    show_default=True,
    metavar="BYTES",
    help="Of an interface, record this much of each packet; 0 is all.",
)
@TUNNEL
def live(source: str, interval: float, window: float, snaplen: int, tunnel: tuple[str, ...]) -> None:
    """Show a capture while it is recorded: rates, ops, pairs, problems.

    SOURCE is a network interface (with tcpdump), a file that another program is writing (tcpdump -U -w FILE),
    a FIFO, or - for standard input. Memory and disk space are bounded, so this can run for days.
    Ctrl-C ends it.
    """
    show_live(source, Settings(interval, window, tunnel_ports(tunnel), snaplen))


@wire.command()
@click.option("--install", is_flag=True, help="Copy it to Wireshark's folder of personal plugins.")
def dissector(install: bool) -> None:
    """Print the path of the Wireshark dissector for Dask, or install it.

    With the dissector, Wireshark and tshark know the display filter "dask" and its fields, such as dask.op.
    """
    write_line(install_dissector() if install else DISSECTOR)

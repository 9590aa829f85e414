"""The command ``wire``: tables for a terminal, JSON for programs; results on stdout, the rest on stderr."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress as Bar

from lab.wire.capture import Capture
from lab.wire.errors import WireError
from lab.wire.file.reading import first_packet_ns
from lab.wire.follow import Follower
from lab.wire.opening import open_capture
from lab.wire.schema import TABLES
from lab.wire.tables.exchange import exchange
from lab.wire.tables.export import rows, write_parquet
from lab.wire.tables.summary import summarise
from lab.wire.terminal.printing import print_summary, print_table

LONG_FILE = 200_000_000  # bytes from which progress is shown


class SummaryByDefault(click.Group):
    """``wire FILE`` means ``wire summary FILE``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command where none is named."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["summary", *args]
        return super().parse_args(ctx, args)


@click.group(cls=SummaryByDefault, no_args_is_help=True)
def wire() -> None:
    """What Dask said, from packets alone.

    FILES are captures of one cluster: pcap or pcapng, also .gz and .zst. `wire FILE` gives a summary.
    """


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Arguments that every command has; opens the capture for it."""

    def run(
        files: tuple[Path, ...],
        since: str | None,
        until: str | None,
        node: tuple[str, ...],
        key_log: Path | None,
        as_json: bool,
        parquet: Path | None,
        limit: int,
    ) -> None:
        try:
            capture = _open(files, since, until, node, key_log)
            if parquet:
                names = None if command.__name__ == "summary" else [command.__name__]
                for path in write_parquet(capture, parquet, names):
                    click.echo(path)
                return
            command(capture, as_json, limit or None)
        except WireError as error:
            raise click.ClickException(str(error)) from error

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return _parameters(run)


def _parameters(run: Callable[..., None]) -> Callable[..., None]:
    for decorate in (
        click.option("--limit", default=40, show_default=True, help="Rows to show; 0 shows all."),
        click.option(
            "--parquet", type=click.Path(path_type=Path), metavar="DIR", help="Write the table(s) as Parquet."
        ),
        click.option("--json", "as_json", is_flag=True, help="JSON on stdout, all rows."),
        click.option("--key-log", type=click.Path(path_type=Path), help="TLS key log (SSLKEYLOGFILE)."),
        click.option("--node", multiple=True, metavar="ADDRESS=NAME", help="Name a node; may be repeated."),
        click.option("--until", metavar="TIME", help="Up to then, likewise."),
        click.option(
            "--since", metavar="TIME", help="From then: seconds after the first packet, or ISO 8601."
        ),
        click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path)),
    ):
        run = decorate(run)
    return run


def _open(
    files: tuple[Path, ...], since: str | None, until: str | None, node: tuple[str, ...], key_log: Path | None
) -> Capture:
    begin = first_packet_ns(files) if since or until else 0
    size = sum(file.stat().st_size for file in files if file.exists())
    with Bar(console=Console(stderr=True), disable=size < LONG_FILE, transient=True) as bar:
        task = bar.add_task("reading", total=1.0)
        capture = open_capture(
            files,
            since_ns=_time_ns(since, begin),
            until_ns=_time_ns(until, begin),
            names=dict(_pair(text) for text in node),
            key_log=_read(key_log),
            report=lambda share: bar.update(task, completed=share),
        )
    for file in capture.files:
        if file.progress.problem:
            click.echo(f"warning: {file.path}: {file.progress.problem}", err=True)
    return capture


def _pair(text: str) -> tuple[str, str]:
    address, equals, name = text.partition("=")
    if not equals or not name:
        raise WireError(f"--node {text}: say ADDRESS=NAME, as in 10.0.0.1=scheduler")
    return address, name


def _read(key_log: Path | None) -> str | None:
    try:
        return key_log.read_text("ascii", "replace") if key_log else None
    except OSError as error:
        raise WireError(f"{key_log}: {error.strerror}") from error


def _time_ns(text: str | None, begin_ns: int) -> int | None:
    """Seconds after the first packet, or an ISO 8601 time (local when it names no zone)."""
    if text is None:
        return None
    try:
        return begin_ns + round(float(text) * 1e9)
    except ValueError:
        pass
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e9)
    except ValueError:
        raise WireError(
            f"{text!r} is neither seconds after the first packet nor a time like 2026-11-21T05:00:00"
        ) from None


def _show(capture: Capture, name: str, as_json: bool, limit: int | None) -> None:
    table = capture.table(name)
    if as_json:
        click.echo(json.dumps({"schema": 1, "table": name, "columns": TABLES[name], "rows": rows(table)}))
        return
    number = len(next(iter(table.values())))
    print_table(table, name, capture.tally.first_ns, limit)
    if limit is not None and number > limit:
        click.echo(f"{limit} of {number} rows; --limit 0 shows all", err=True)


def _command(name: str, text: str) -> None:
    def show(capture: Capture, as_json: bool, limit: int | None) -> None:
        _show(capture, name, as_json, limit)

    show.__name__, show.__doc__ = name, text
    wire.command(name)(options(show))


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
@options
def heartbeats(capture: Capture, as_json: bool, limit: int | None) -> None:
    """Each worker's heartbeats; the first is drawn packet by packet."""
    found = capture.messages
    if not as_json:
        beats = [
            m
            for m, op in zip(found.op_message.tolist(), found.op_name, strict=True)
            if op == "heartbeat_worker"
        ]
        for line in exchange(capture, beats[0]) if beats else ["no heartbeat in this capture"]:
            click.echo(line)
        click.echo()
    _show(capture, "heartbeats", as_json, limit)


@options
def summary(capture: Capture, as_json: bool, limit: int | None) -> None:
    """What is in a capture, how complete it is, and the figures most asked for."""
    said = summarise(capture)
    if as_json:
        click.echo(json.dumps({"schema": 1, **said}))
        return
    print_summary(capture, said)


def _with_follow(run: Callable[..., None]) -> Callable[..., None]:
    """The summary can also watch one growing file."""

    def choose(follow: bool, files: tuple[Path, ...], **rest: Any) -> None:
        if follow:
            watch(files)
        else:
            run(files=files, **rest)

    choose.__doc__, choose.__name__ = run.__doc__, "summary"
    choose.__dict__.update(run.__dict__)
    return click.option(
        "--follow", is_flag=True, help="Watch one growing file: ops per second until Ctrl-C."
    )(choose)


wire.command("summary")(_with_follow(summary))


def watch(files: tuple[Path, ...], interval_s: float = 1.0, rounds: int | None = None) -> None:
    """One line per second with the ops seen in it."""
    if len(files) != 1:
        raise click.ClickException("--follow watches exactly one file")
    follower = Follower(files[0])
    try:
        while rounds is None or rounds > 0:
            said = follower.poll()
            ops = Counter(op for message in said for op in message.ops)
            text = "  ".join(f"{op} {number}" for op, number in ops.most_common(8))
            size = sum(message.size for message in said)
            click.echo(f"{datetime.now():%H:%M:%S}  {len(said):6} messages  {size / 1e6:9.2f} MB  {text}")
            rounds = None if rounds is None else rounds - 1
            time.sleep(interval_s)
    except WireError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        return

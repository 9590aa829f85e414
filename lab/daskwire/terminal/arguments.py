"""The arguments that all commands share: files, time span, node names, output format."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from daskwire.analysis.opening import open_capture
from daskwire.base.errors import ArgumentError, WireError
from daskwire.decoder.capture import Capture
from daskwire.decoder.file.reading import first_packet_ns
from daskwire.decoder.file.source import STDIN, Source, open_sources
from daskwire.decoder.net.packets.tunnels import GENEVE, VXLAN
from daskwire.terminal.text import progress_bar, write_line

LONG_FILE = 200_000_000  # bytes from which a progress bar is shown
KINDS = (VXLAN, GENEVE)
ISO = "%Y-%m-%dT%H:%M:%S.%f"


@dataclass(frozen=True)
class Options:
    """The arguments of a command. ``limit``: number of rows to print, None for all."""

    files: tuple[Path, ...]
    since: str | None
    until: str | None
    node: tuple[str, ...]
    key_log: Path | None
    tunnel: tuple[str, ...]
    as_json: bool = False
    parquet: Path | None = None
    limit: int | None = None
    output: Path | None = None


_PATH = click.Path(path_type=Path)
_OUTPUT = (
    click.option(
        "--limit", type=click.IntRange(min=0), default=40, show_default=True,
        help="Number of rows to print; 0 prints all.",
    ),
    click.option("--parquet", type=_PATH, metavar="DIR", help="Write the table(s) as Parquet to DIR."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON with all rows."),
)  # fmt: skip
TUNNEL = click.option(
    "--tunnel", multiple=True, metavar="udp:PORT=KIND",
    help="Decode a tunnel on this port; KIND is vxlan or geneve. Repeatable.",
)  # fmt: skip
_CAPTURE = (
    click.option("--key-log", type=_PATH, help="Decrypt TLS with this key log (see SSLKEYLOGFILE)."),
    TUNNEL,
    click.option("--node", multiple=True, metavar="ADDRESS=NAME", help="Name a node. Repeatable."),
    click.option("--until", metavar="TIME", help="Ignore packets after TIME (see --since)."),
    click.option(
        "--since", metavar="TIME",
        help="Ignore packets before TIME: seconds after the first packet, or ISO 8601.",
    ),
    click.argument("files", nargs=-1, required=True, type=_PATH),
)  # fmt: skip


def arguments(command: Callable[[Options], None]) -> Callable[..., None]:
    """Add the arguments of a command that prints a table."""
    return _decorated(command, (*_OUTPUT, *_CAPTURE))


def capture_arguments(command: Callable[[Options], None]) -> Callable[..., None]:
    """Add the arguments that select a capture and what is read of it."""
    return _decorated(command, _CAPTURE)


def _decorated(command: Callable[[Options], None], decorators: Iterable[Any]) -> Callable[..., None]:
    def run(**options: Any) -> None:
        command(Options(**options | {"limit": options.get("limit") or None}))

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__dict__.update(command.__dict__)  # options of this command only
    for decorate in decorators:
        run = decorate(run)
    return run


def open_files(options: Options) -> Capture:
    """Open the capture, and print warnings about its files.

    Raises:
        WireError: a file cannot be read.
        ArgumentError: an argument is invalid.
    """
    if any(file.is_fifo() or str(file) == STDIN for file in options.files) and sys.stderr.isatty():
        write_line("reading a pipe until it ends; Ctrl-C ends the recording", err=True)
    sources = open_sources(options.files)
    begin = first_packet_ns(sources) if options.since or options.until else 0
    capture = _open(options, sources, begin)
    if begin > capture.tally.begin_ns:  # the earliest packet is not the first of a file
        capture = _open(options, sources, capture.tally.begin_ns)
    for file in capture.files:
        for problem in file.problems():
            write_line(f"warning: {file.path}: {problem}", err=True)
    if not capture.tally.packets and capture.tally.end_ns:
        extent = _extent(capture)
        write_line(f"warning: no packet in this time span; the capture covers {extent}", err=True)
    return capture


def _open(options: Options, sources: list[Source], begin: int) -> Capture:
    since, until = _time_ns(options.since, begin), _time_ns(options.until, begin)
    if since is not None and until is not None and since >= until:
        raise ArgumentError(f"--since {options.since} is not before --until {options.until}")
    names = dict(_pair(text) for text in options.node)
    key_log = _read(options.key_log)
    with progress_bar(sum(len(source.view) for source in sources) >= LONG_FILE) as bar:
        task = bar.add_task("reading", total=1.0)
        return open_capture(
            sources,
            since_ns=since,
            until_ns=until,
            names=names,
            key_log=key_log,
            tunnel_ports=tunnel_ports(options.tunnel),
            report=lambda share: bar.update(task, completed=share),
        )


def _extent(capture: Capture) -> str:
    tally = capture.tally
    begin, end = (datetime.fromtimestamp(ns / 1e9) for ns in (tally.begin_ns, tally.end_ns))
    return f"0 to {(tally.end_ns - tally.begin_ns) / 1e9:.6f} s ({begin:{ISO}} to {end:{ISO}})"


def _pair(text: str) -> tuple[str, str]:
    address, equals, name = text.partition("=")
    if not address or not equals or not name:
        raise ArgumentError(f"--node {text}: expected ADDRESS=NAME, as in 10.0.0.1=scheduler")
    return address, name


def tunnel_ports(texts: Iterable[str]) -> dict[int, str]:
    """Parse the option --tunnel: UDP port -> kind of tunnel.

    Raises:
        ArgumentError: one of them is invalid.
    """
    return dict(map(_tunnel_port, texts))


def _tunnel_port(text: str) -> tuple[int, str]:
    match = re.fullmatch(r"udp:(\d{1,5})=(\w+)", text)
    if not match or match[2] not in KINDS or int(match[1]) > 65535:
        raise ArgumentError(
            f"--tunnel {text}: expected udp:PORT=KIND with KIND {' or '.join(KINDS)}, as in udp:4790=vxlan"
        )
    return int(match[1]), match[2]


def _read(key_log: Path | None) -> str | None:
    try:
        return key_log.read_text("ascii", "replace") if key_log else None
    except OSError as error:
        raise WireError(f"{key_log}: {error.strerror}") from error


def _time_ns(text: str | None, begin_ns: int) -> int | None:
    """Parse seconds after the first packet, or an ISO 8601 time (local without a zone)."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return _iso_ns(text)
    if not math.isfinite(seconds) or abs(seconds) > 1e10:
        raise ArgumentError(f"{text!r} is not a number of seconds after the first packet")
    return begin_ns + round(seconds * 1e9)


def _iso_ns(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e9)  # for Python 3.10
    except (ValueError, OverflowError):
        raise ArgumentError(
            f"{text!r} is neither seconds after the first packet nor a time like 2026-11-21T05:00:00"
        ) from None

"""The arguments that every command has, and what they mean: files, a span of time, names, form of the answer.

Mistakes are one line, as everywhere in the toolkit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from daskwire.capture import Capture
from daskwire.errors import WireError
from daskwire.file.reading import first_packet_ns
from daskwire.opening import open_capture
from daskwire.terminal.text import bar, say

LONG_FILE = 200_000_000  # bytes from which progress is shown
ISO = "%Y-%m-%dT%H:%M:%S.%f"


@dataclass(frozen=True)
class Asked:
    """What the arguments of a command ask for. ``limit``: rows to show, None for all."""

    files: tuple[Path, ...]
    since: str | None
    until: str | None
    node: tuple[str, ...]
    key_log: Path | None
    as_json: bool
    parquet: Path | None
    limit: int | None
    follow: bool = False


def arguments(command: Callable[[Asked], None]) -> Callable[..., None]:
    """Give a command these arguments."""

    def run(limit: int, **given: Any) -> None:
        command(Asked(limit=limit or None, **given))

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__dict__.update(command.__dict__)  # options that only this command has
    path = click.Path(path_type=Path)
    for decorate in (
        click.option(
            "--limit", type=click.IntRange(min=0), default=40, show_default=True,
            help="Rows to show; 0 shows all.",
        ),
        click.option("--parquet", type=path, metavar="DIR", help="Write the table(s) as Parquet."),
        click.option("--json", "as_json", is_flag=True, help="JSON on stdout, all rows."),
        click.option("--key-log", type=path, help="TLS key log (SSLKEYLOGFILE)."),
        click.option("--node", multiple=True, metavar="ADDRESS=NAME", help="Name a node; may be repeated."),
        click.option("--until", metavar="TIME", help="Up to then, likewise."),
        click.option(
            "--since", metavar="TIME", help="From then: seconds after the first packet, or ISO 8601."
        ),
        click.argument("files", nargs=-1, required=True, type=path),
    ):  # fmt: skip
        run = decorate(run)
    return run


def open_asked(asked: Asked) -> Capture:
    """Open the capture; say on stderr what is wrong with it. Raises WireError."""
    begin = first_packet_ns(asked.files) if asked.since or asked.until else 0
    capture = _open(asked, begin)
    if begin > capture.tally.begin_ns:  # the first packet does not stand first
        capture = _open(asked, capture.tally.begin_ns)
    for file in capture.files:
        for problem in file.problems():
            say(f"warning: {file.path}: {problem}", err=True)
    if not capture.tally.packets and capture.tally.end_ns:
        say(f"warning: no packet in this span; the capture goes {_extent(capture)}", err=True)
    return capture


def _open(asked: Asked, begin: int) -> Capture:
    since, until = _time_ns(asked.since, begin), _time_ns(asked.until, begin)
    if since is not None and until is not None and since >= until:
        raise WireError(f"--since {asked.since} is not before --until {asked.until}")
    names = dict(_pair(text) for text in asked.node)
    key_log = _read(asked.key_log)
    size = sum(file.stat().st_size for file in asked.files if file.exists())
    with bar(size >= LONG_FILE) as shown:
        task = shown.add_task("reading", total=1.0)
        return open_capture(
            asked.files,
            since_ns=since,
            until_ns=until,
            names=names,
            key_log=key_log,
            report=lambda share: shown.update(task, completed=share),
        )


def _extent(capture: Capture) -> str:
    tally = capture.tally
    begin, end = (datetime.fromtimestamp(ns / 1e9) for ns in (tally.begin_ns, tally.end_ns))
    return f"from 0 to {(tally.end_ns - tally.begin_ns) / 1e9:.6f} s ({begin:{ISO}} to {end:{ISO}})"


def _pair(text: str) -> tuple[str, str]:
    address, equals, name = text.partition("=")
    if not address or not equals or not name:
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
        seconds = float(text)
    except ValueError:
        return _iso_ns(text)
    if not math.isfinite(seconds) or abs(seconds) > 1e10:
        raise WireError(f"{text!r} is no number of seconds after the first packet")
    return begin_ns + round(seconds * 1e9)


def _iso_ns(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e9)  # for Python 3.10
    except (ValueError, OverflowError):
        raise WireError(
            f"{text!r} is neither seconds after the first packet nor a time like 2026-11-21T05:00:00"
        ) from None

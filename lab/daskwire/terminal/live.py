"""The command ``live``: a screen, or a line per interval, of a capture while it is recorded."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from rich.console import Group, RenderableType
from rich.table import Table

from daskwire.analysis.live.monitor import Interval, Monitor
from daskwire.analysis.live.recording import Recording, Tcpdump, is_interface
from daskwire.base.errors import WireError
from daskwire.decoder.file.source import STDIN, STDIN_NAME
from daskwire.terminal.printing import answer_line, cell, on_terminal, screen, write_line

PROBLEMS_EVERY_S = 10.0
LIST_ROWS = 8


@dataclass(frozen=True)
class Settings:
    """How to show a running capture.

    Attributes:
        interval_s: between two updates.
        window_s: problems are looked for in the last seconds.
        tunnel_ports: UDP port -> kind of tunnel, in addition to their usual ports.
        snaplen_bytes: how much of each packet tcpdump records, 0 for all.
    """

    interval_s: float
    window_s: float
    tunnel_ports: Mapping[int, str]
    snaplen_bytes: int


def live(source: str, settings: Settings) -> None:
    """Show a capture until it ends or until Ctrl-C.

    Raises:
        WireError: the source cannot be recorded, or is not a capture.
    """
    name = STDIN_NAME if source == STDIN else source
    with (
        _opened(source, settings.snaplen_bytes) as (pipe, tcpdump),
        Recording(pipe, name, grows=Path(source).is_file()) as recording,
    ):
        monitor = Monitor(recording, settings.window_s, time.monotonic(), settings.tunnel_ports)
        try:
            _run(recording, monitor, settings, tcpdump)
        except KeyboardInterrupt:
            _stop(recording, tcpdump)
        _show_last(recording, monitor, tcpdump.dropped if tcpdump else 0)
        if tcpdump and tcpdump.failure:
            raise WireError(tcpdump.failure)


def _run(recording: Recording, monitor: Monitor, settings: Settings, tcpdump: Tcpdump | None) -> None:
    """Poll and show until the recording ends."""
    next_look = time.monotonic() + PROBLEMS_EVERY_S
    with screen(on_terminal()) as update:
        while not recording.ended.wait(settings.interval_s):
            now = time.monotonic()
            interval = monitor.poll(now)
            if now >= next_look:
                monitor.look_for_problems()
                next_look = time.monotonic() + PROBLEMS_EVERY_S
            if tcpdump:
                tcpdump.ask()
            if update:
                update(_screen(monitor, interval, tcpdump.dropped if tcpdump else None, recording.stored))
            else:
                write_line(_line(interval))


def _stop(recording: Recording, tcpdump: Tcpdump | None) -> None:
    """End tcpdump, and let its last packets arrive. Another writer got the same Ctrl-C."""
    if tcpdump:
        tcpdump.stop()
    recording.stop()
    recording.ended.wait(2.0)


def _show_last(recording: Recording, monitor: Monitor, dropped: int) -> None:
    """Decode the rest, and print the totals and the problems of the last seconds."""
    if recording.error:
        raise WireError(recording.error)
    monitor.poll(time.monotonic(), final=True)
    monitor.look_for_problems()
    totals = monitor.totals
    write_line(
        f"{totals.packets:,} packets, {totals.messages:,} messages in {totals.seconds:.1f} s;"
        f" {dropped:,} packets dropped"
    )
    write_line(f"problems in the last {monitor.problem_s:.0f} s:" if monitor.problems else _answer(monitor))
    for line in _problem_lines(monitor):
        write_line(line)


@contextmanager
def _opened(source: str, snaplen_bytes: int) -> Iterator[tuple[IO[bytes], Tcpdump | None]]:
    """Open standard input, a FIFO or file, or an interface."""
    if source == STDIN:
        if sys.stdin.isatty():
            raise WireError(
                "standard input is a terminal; pipe a capture into it: tcpdump -w - | daskwire live -"
            )
        yield sys.stdin.buffer, None
    elif Path(source).exists():
        with Path(source).open("rb") as file:
            yield file, None
    elif is_interface(source):
        tcpdump = Tcpdump(source, snaplen_bytes)
        try:
            yield tcpdump.output, tcpdump
        finally:
            tcpdump.stop()
    else:
        raise WireError(f"{source}: no such interface or file")


def _line(interval: Interval) -> str:
    seconds = max(interval.seconds, 1e-9)
    ops = "  ".join(f"{op} {number}" for op, number in interval.ops.most_common(LIST_ROWS))
    rate = interval.wire_bytes / 1e6 / seconds
    return (
        f"{datetime.now():%H:%M:%S}  {interval.packets / seconds:9,.0f} packets/s  {rate:9.2f} MB/s"
        f"  {interval.messages / seconds:8,.0f} messages/s  {ops}"
    )


def _screen(monitor: Monitor, interval: Interval, dropped: int | None, stored: int) -> RenderableType:
    seconds = max(interval.seconds, 1e-9)
    ops, pairs = Table(title="ops", box=None), Table(title="pairs", box=None)
    for name in ("op", "per second", "total"):
        ops.add_column(name, justify="left" if name == "op" else "right")
    for op, total in monitor.totals.ops.most_common(LIST_ROWS):
        ops.add_row(cell(op), f"{interval.ops[op] / seconds:,.0f}", f"{total:,}")
    for name in ("sender", "receiver", "MB/s", "total MB"):
        pairs.add_column(name, justify="right" if "MB" in name else "left")
    for (source, destination), total in monitor.totals.pairs.most_common(LIST_ROWS):
        names = (cell(monitor.name(address)) for address in (source, destination))
        now_mb = interval.pairs[source, destination] / 1e6 / seconds
        pairs.add_row(*names, f"{now_mb:,.2f}", f"{total / 1e6:,.1f}")
    losses = "" if dropped is None else f"; {dropped:,} packets dropped"
    problems = _problem_lines(monitor) or [_answer(monitor) if monitor.problem_s else "not yet looked for"]
    title = f"problems in the last {monitor.problem_s:.0f} s: " if monitor.problem_s else "problems: "
    head = cell(_line(interval)), cell(f"{stored / 1e6:,.0f} MB stored{losses}")
    return Group(*head, ops, pairs, cell(title), *map(cell, problems))


def _answer(monitor: Monitor) -> str:
    """Say what the last look rests on, if it found no problem."""
    return answer_line(monitor.verdict) if monitor.verdict else "nothing to judge: no packet could be read"


def _problem_lines(monitor: Monitor) -> list[str]:
    return [
        f"{row['problem']}: {' to '.join(filter(None, (row['source'], row['destination'])))}: {row['what']}"
        for row in monitor.problems[:LIST_ROWS]
    ]

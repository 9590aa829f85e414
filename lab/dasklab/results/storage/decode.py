"""The one place that opens a trial's captures: each is decoded once, all who ask about it read what is kept.

``decoded/`` beside the trial's other files holds the tables of ``daskwire`` as Parquet and, in summary.json,
what takes the packets themselves. The folder may be deleted; it is made again from the captures on demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import daskwire
import numpy as np
import numpy.typing as npt
from daskwire.tables import exchange, study
from pyarrow.lib import ArrowException
from pyarrow.parquet import ParquetFile

from dasklab.errors import LabError
from dasklab.model.document import Document
from dasklab.model.files import CaptureReport
from dasklab.model.strict import Strict
from dasklab.notices import warn
from dasklab.results.storage import store

FOLDER = "decoded"
CUT_BYTES = 1448  # TCP payload of a full Ethernet frame, with timestamps
JOINED_BYTES = 45 * CUT_BYTES  # the most that offload joins to one super-packet
SIZES = {"captured": None, "cut": CUT_BYTES, "joined": JOINED_BYTES}
HEARTBEAT = "heartbeat_worker"
Window = tuple[int, int]


class Packets(Strict):
    """Packets with payload that the study's method counts for an op: the first that it finds in them."""

    source: str
    destination: str
    op: str
    packets: int


class Traffic(Strict):
    """IP bytes from one node to another while the runs went on."""

    source: str
    destination: str
    ip_bytes: int


class Heartbeat(Strict):
    """A heartbeat like most: its packets, and what request and reply say, each field as text."""

    packets: tuple[exchange.Packet, ...]
    request: dict[str, str]
    reply: dict[str, str]


class Summary(Document):
    """What a capture's tables do not hold.

    ``problems``: what is wrong with the files; ``counted``: packets by op, as captured and as if offload had
    been off or on.
    """

    FILE: ClassVar[str] = f"{FOLDER}/summary.json"

    problems: tuple[str, ...]
    first_ns: int = 0
    last_ns: int = 0
    messages: int = 0
    completeness: dict[str, float | None] = {}
    counted: dict[str, tuple[Packets, ...]] = {}
    heartbeat: Heartbeat | None = None
    traffic: tuple[Traffic, ...] = ()

    @property
    def decodable(self) -> bool:
        """Could the captures be read at all, so that there are tables?"""
        return bool(self.completeness)


def summary(directory: Path, report: CaptureReport) -> Summary:
    """What is kept of a trial's captures; they are decoded now if they never were.

    Raises:
        LabError: what was decoded cannot be written.
    """
    kept = _kept(directory)
    return kept if kept is not None else _decode(directory, report)


def rows(directory: Path, report: CaptureReport, kept: Summary, name: str) -> list[dict[str, Any]]:
    """Return a table of ``daskwire``, row by row; empty where the captures could not be read.

    A table that is damaged or missing is decoded again from the captures.

    Raises:
        LabError: it is damaged or missing, and so are the captures.
    """
    if not kept.decodable:
        return []
    path = directory / FOLDER / f"{name}.parquet"
    try:
        return _read_rows(path)
    except (OSError, ValueError, ArrowException) as error:
        why = "missing" if isinstance(error, FileNotFoundError) else f"damaged ({_first_line(error)})"
    warn(f"{path}: {why}; the captures are decoded again")
    made = _decode(directory, report)
    if not made.decodable:
        raise LabError(f"{path}: {why}, and it cannot be made again: {'; '.join(made.problems)}")
    return _read_rows(path)


def _kept(directory: Path) -> Summary | None:
    """The summary that was kept, if it and its tables are whole."""
    try:
        return store.read(Summary, directory)
    except LabError as error:
        warn(f"{error.message}; the captures are decoded again")
        return None


def _read_rows(path: Path) -> list[dict[str, Any]]:
    return daskwire.rows(ParquetFile(path, page_checksum_verification=True).read().to_pydict())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def window_ns(report: CaptureReport, first_ns: int, last_ns: int) -> Window:
    """From the first run's begin to the last one's end; without runs the whole capture."""
    runs = report.timings.samples
    if not runs:
        return first_ns, last_ns + 1
    return int(1e9 * min(run.start for run in runs)), int(1e9 * max(run.stop for run in runs))


def _decode(directory: Path, report: CaptureReport) -> Summary:
    """Decode the captures and keep the tables and the summary; what cannot be read is not kept."""
    files = sorted(directory.glob("capture*.pcap"))
    if not files:
        return Summary(problems=("its files are missing",))
    try:
        capture = daskwire.open_capture(files, names=report.timings.cluster.names)
    except daskwire.WireError as error:
        return Summary(problems=(str(error),))
    try:
        daskwire.write_parquet(capture, directory / FOLDER)
    except daskwire.WireError as error:
        raise LabError(str(error)) from error
    made = _summarise(capture, report)
    store.write(directory, made)  # last: without it the tables count for nothing
    return made


def _summarise(capture: daskwire.Capture, report: CaptureReport) -> Summary:
    ends = (capture.tally.first_ns, capture.tally.last_ns) if capture.tally.packets else (0, 0)
    window = window_ns(report, *ends)
    progress = {Path(file.path).name: file.progress for file in capture.files}
    return Summary(
        problems=tuple(f"{name}: {read.problem}" for name, read in progress.items() if read.problem),
        first_ns=ends[0],
        last_ns=ends[1],
        messages=len(capture.messages),
        completeness=daskwire.completeness(capture),
        counted=_counted(capture),
        heartbeat=_heartbeat(capture, window),
        traffic=tuple(_traffic(capture, window)),
    )


def _counted(capture: daskwire.Capture) -> dict[str, tuple[Packets, ...]]:
    names = study.find_names(capture)
    tables = {size: study.packets_by_first_op(names, segment) for size, segment in SIZES.items()}
    return {
        size: tuple(Packets.model_validate(row) for row in daskwire.rows(table))
        for size, table in tables.items()
    }


def _heartbeat(capture: daskwire.Capture, window: Window) -> Heartbeat | None:
    """Of the runs' answered heartbeats that take as many packets as most do, the one of middle length."""
    found = capture.messages
    during = _during(found.time_ns, window)
    sizes: dict[int, int] = {
        message: len(exchange.exchange_rows(capture, message))
        for message, op in zip(found.op_message.tolist(), found.op_name, strict=True)
        if op == HEARTBEAT and found.answer[message] >= 0 and during[message]
    }
    if not sizes:
        return None
    usual = Counter(sizes.values()).most_common(1)[0][0]
    alike = [message for message, size in sizes.items() if size == usual]
    alike.sort(key=lambda message: int(found.end_ns[found.answer[message]] - found.time_ns[message]))
    request = alike[len(alike) // 2]
    return Heartbeat(
        packets=tuple(exchange.packets(capture, request)),
        request=_fields(capture, request),
        reply=_fields(capture, int(found.answer[request])),
    )


def _fields(capture: daskwire.Capture, message: int) -> dict[str, str]:
    fields = exchange.fields(capture, message) or {}
    return {path: exchange.shortened(value) for path, value in fields.items()}


def _traffic(capture: daskwire.Capture, window: Window) -> Iterator[Traffic]:
    segments, sources = capture.segments, capture.sources
    during = _during(segments.time_ns, window)
    size = np.bincount(segments.flow[during], segments.ip_bytes[during], minlength=len(sources))
    found: Counter[tuple[str, str]] = Counter()
    for flow in np.flatnonzero(size).tolist():
        found[str(sources[flow]), str(sources[flow ^ 1])] += int(size[flow])
    for (source, destination), ip_bytes in sorted(found.items()):
        yield Traffic(source=source, destination=destination, ip_bytes=ip_bytes)


def _during(times_ns: npt.NDArray[np.int64], window: Window) -> npt.NDArray[np.bool_]:
    return np.asarray((times_ns >= window[0]) & (times_ns < window[1]), np.bool_)

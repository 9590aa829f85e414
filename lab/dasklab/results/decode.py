"""Decode the captures of a trial, once; all readers use the tables that are kept.

A folder of the cache holds the tables of ``daskwire`` as Parquet and, in summary.json, what needs the packets
themselves; it is made again from the captures on demand. It is never in the trial's directory, which may come
from somebody else: what Parquet unpacks to has no bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import daskwire
import numpy as np
import numpy.typing as npt
from daskwire.analysis.tables import study, traffic
from pyarrow.lib import ArrowException
from pyarrow.parquet import ParquetFile

from dasklab.errors import LabError
from dasklab.model.files import CaptureReport
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict
from dasklab.notices import warn
from dasklab.results import cached
from dasklab.results.storage import documents

FOLDER = "decoded"
CUT_BYTES = 1448  # TCP payload of a full Ethernet frame, with timestamps
JOINED_BYTES = 45 * CUT_BYTES  # the largest super-packet that offload makes
SIZES = {"captured": None, "cut": CUT_BYTES, "joined": JOINED_BYTES}
HEARTBEAT = "heartbeat_worker"
Window = tuple[int, int]


class Packets(Strict):
    """Packets with payload that the study's method counts for an op: the first one found in them."""

    source: str
    destination: str
    op: str
    packets: int


class Traffic(Strict):
    """IP bytes from one node to another during the repeats."""

    source: str
    destination: str
    ip_bytes: int


class Heartbeat(Strict):
    """A typical heartbeat: its packets, and the fields of request and reply as texts."""

    packets: tuple[traffic.Packet, ...]
    request: dict[str, str]
    reply: dict[str, str]


class CaptureSummary(Document):
    """What the tables of a capture do not hold.

    Attributes:
        problems: what is wrong with the files.
        first_ns, last_ns: times of the first and the last packet.
        messages: the number of Dask's messages.
        completeness: shares and counts of ``daskwire.completeness``.
        counted: packets by op, as captured and as if offload had been off or on.
        heartbeat: a typical heartbeat during the repeats.
        traffic: who sent how much to whom during the repeats.
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
        """Whether the captures could be read, so that there are tables."""
        return bool(self.completeness)


def summary(directory: Path, report: CaptureReport) -> CaptureSummary:
    """Return the summary of a trial's captures; they are decoded now if they never were.

    Raises:
        LabError: the tables cannot be written.
    """
    stored = _stored_summary(_place(directory, report))
    return stored if stored is not None else _decode(directory, report)


def rows(directory: Path, report: CaptureReport, summary: CaptureSummary, name: str) -> list[dict[str, Any]]:
    """Return a table of ``daskwire``, row by row; empty if the captures could not be read.

    A table that is damaged or missing is made again from the captures.

    Raises:
        LabError: the table is damaged or missing, and so are the captures.
    """
    if not summary.decodable:
        return []
    path = _place(directory, report) / FOLDER / f"{name}.parquet"
    try:
        return _read_rows(path)
    except (OSError, ValueError, ArrowException) as error:
        reason = "missing" if isinstance(error, FileNotFoundError) else f"damaged ({_first_line(error)})"
    warn(f"{path}: {reason}; the captures are decoded again")
    decoded = _decode(directory, report)
    if not decoded.decodable:
        raise LabError(f"{path}: {reason}, and it cannot be made again: {'; '.join(decoded.problems)}")
    return _read_rows(path)


def _place(directory: Path, report: CaptureReport) -> Path:
    """Return the folder that ``decoded`` is in."""
    return cached.folder_for(directory, report.to_json().encode())


def _stored_summary(directory: Path) -> CaptureSummary | None:
    try:
        return documents.read(CaptureSummary, directory)
    except LabError as error:
        warn(f"{error.message}; the captures are decoded again")
        return None


def _read_rows(path: Path) -> list[dict[str, Any]]:
    return daskwire.rows(ParquetFile(path, page_checksum_verification=True).read().to_pydict())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def window_ns(report: CaptureReport, first_ns: int, last_ns: int) -> Window:
    """Return the time from the start of the first repeat to the end of the last; without any, all of it."""
    repeats = report.timings.samples
    if not repeats:
        return first_ns, last_ns + 1
    return int(1e9 * min(repeat.start for repeat in repeats)), int(
        1e9 * max(repeat.stop for repeat in repeats)
    )


def _decode(directory: Path, report: CaptureReport) -> CaptureSummary:
    """Decode the captures and store the tables and the summary; unreadable captures are not stored."""
    place = _place(directory, report)
    files = sorted(directory.glob("capture*.pcap"))
    if not files:
        return CaptureSummary(problems=("its files are missing",))
    try:
        capture = daskwire.open_capture(files, names=report.timings.cluster.names)
    except daskwire.WireError as error:
        return CaptureSummary(problems=(str(error),))
    try:
        daskwire.write_parquet(capture, place / FOLDER)
    except daskwire.WireError as error:
        raise LabError(str(error)) from error
    decoded = _summarise(capture, report)
    documents.write(place, decoded)  # last: without a summary the tables are ignored
    return decoded


def _summarise(capture: daskwire.Capture, report: CaptureReport) -> CaptureSummary:
    ends = (capture.tally.first_ns, capture.tally.last_ns) if capture.tally.packets else (0, 0)
    window = window_ns(report, *ends)
    progress = {Path(file.path).name: file.progress for file in capture.files}
    return CaptureSummary(
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
    """Return the answered heartbeat of median duration among those with the usual number of packets."""
    messages = capture.messages
    during = _during(messages.time_ns, window)
    sizes: dict[int, int] = {
        message: traffic.exchange_length(capture, message)
        for message in messages.op_message[messages.ops_named({HEARTBEAT})].tolist()
        if messages.answer[message] >= 0 and during[message]
    }
    if not sizes:
        return None
    usual = Counter(sizes.values()).most_common(1)[0][0]
    alike = [message for message, size in sizes.items() if size == usual]
    alike.sort(key=lambda message: int(messages.end_ns[messages.answer[message]] - messages.time_ns[message]))
    request = alike[len(alike) // 2]
    return Heartbeat(
        packets=tuple(traffic.exchange_packets(capture, request)),
        request=_fields(capture, request),
        reply=_fields(capture, int(messages.answer[request])),
    )


def _fields(capture: daskwire.Capture, message: int) -> dict[str, str]:
    content = traffic.fields(capture, message) or {}
    return {path: traffic.shortened(value) for path, value in content.items()}


def _traffic(capture: daskwire.Capture, window: Window) -> Iterator[Traffic]:
    segments, sources = capture.segments, capture.sources
    during = _during(segments.time_ns, window)
    size = np.bincount(segments.flow[during], segments.ip_bytes[during], minlength=len(sources))
    by_pair: Counter[tuple[str, str]] = Counter()
    for flow in np.flatnonzero(size).tolist():
        by_pair[str(sources[flow]), str(sources[flow ^ 1])] += int(size[flow])
    for (source, destination), ip_bytes in sorted(by_pair.items()):
        yield Traffic(source=source, destination=destination, ip_bytes=ip_bytes)


def _during(times_ns: npt.NDArray[np.int64], window: Window) -> npt.NDArray[np.bool_]:
    return np.asarray((times_ns >= window[0]) & (times_ns < window[1]), np.bool_)

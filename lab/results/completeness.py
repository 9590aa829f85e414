"""Is a trial's capture complete? The machine's counters and the streams themselves are asked, once.

No single counter knows: tcpdump's does not see what a bridge or the kernel's backlog dropped, and the kernel
counts a frame that tcpdump never wrote as received. A byte that its receiver acknowledged but that the files
do not hold was lost, whoever lost it. The verdict is kept in the trial's directory as completeness.json:

==================  ===============================================================================
verdict             complete or lost; ``reasons``: what was lost, in words, empty if nothing was
frames              in the files; ``received``: what passed tcpdump's filter
dropped_kernel      tcpdump's buffer was full; ``dropped_interface``, ``softnet_dropped``: before it
left_behind         received, not dropped, not in the files: tcpdump was stopped too early
stream_seen         share of the bytes of Dask's streams that the files show, 0 to 1
lost_bytes          of the others, those that a receiver acknowledged
messages            Dask's; ``decoded``: the share of them that was understood, 0 to 1
==================  ===============================================================================

Numbers that nobody told are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lab import wire
from lab.model.files import CaptureReport, Completeness
from lab.results import store

DROPS = {
    "dropped_kernel": "the kernel dropped {:,} frames, tcpdump's buffer was full",
    "dropped_interface": "the capture interface dropped {:,} frames",
    "softnet_dropped": "the capturing machine's backlog dropped {:,} frames",
    "left_behind": "tcpdump left {:,} received frames behind when it was stopped",
}


def write(directory: Path) -> None:
    """Judge the capture of a trial, if it has one, and write completeness.json."""
    if report := store.read(CaptureReport, directory):
        store.write(directory, _read_captures(directory, report))


def read(directory: Path) -> Completeness | None:
    """The verdict on a trial's capture, judged now if it was never stored; None without a capture."""
    report = store.read(CaptureReport, directory)
    if report is None:
        return None
    return store.read(Completeness, directory) or _read_captures(directory, report)


def line(verdict: Completeness | None) -> str:
    """What was lost, in one line; empty if nothing was."""
    if verdict is None or verdict.verdict == "complete":
        return ""
    return f"The capture is incomplete: {'; '.join(verdict.reasons)}"


def judge(
    report: CaptureReport, streams: Mapping[str, Any], messages: int, problems: Iterable[str] = ()
) -> Completeness:
    """The verdict, from capture.json, what ``lab.wire`` says of the streams, and the files' own problems."""
    lost_bytes = streams.get("lost_by_capture_bytes")
    reasons = (*_reasons(report, lost_bytes), *problems)
    return Completeness(
        verdict="lost" if reasons else "complete",
        reasons=reasons,
        frames=report.frames,
        received=_received(report),
        dropped_kernel=report.dropped_kernel,
        dropped_interface=report.dropped_interface,
        softnet_dropped=report.softnet_dropped,
        left_behind=report.left_behind,
        stream_seen=streams.get("stream_seen"),
        lost_bytes=lost_bytes,
        messages=messages,
        decoded=streams.get("decoded"),
    )


def _read_captures(directory: Path, report: CaptureReport) -> Completeness:
    """The verdict from the files themselves; what is wrong with a file is a reason."""
    files = sorted(directory.glob("capture*.pcap"))
    try:
        capture = wire.open_capture(files)
    except wire.WireError as error:
        return judge(report, {}, 0, [str(error)])
    problems = [f"{Path(f.path).name}: {f.progress.problem}" for f in capture.files if f.progress.problem]
    problems += [] if files else ["its files are missing"]
    return judge(report, wire.completeness(capture), len(capture.messages), problems)


def _received(report: CaptureReport) -> int | None:
    counts = [tier.received for tier in report.tiers if tier.received is not None]
    return sum(counts) if report.tiers and len(counts) == len(report.tiers) else None


def _reasons(report: CaptureReport, lost_bytes: int | None) -> Iterator[str]:
    if report.frames is None:
        yield "tcpdump did not say what it captured"
    if report.expired:
        yield "tcpdump ended before the runs did"
    yield from (words.format(getattr(report, key)) for key, words in DROPS.items() if getattr(report, key))
    for counter, count in sorted(report.nic_statistics.items()):
        if counter.startswith("rx_") and counter.endswith(("_dropped", "_errors")):
            yield f"the capture interface counted {count:,.0f} {counter}"
    if lost_bytes:
        yield f"{lost_bytes:,} bytes were acknowledged but are not in the files"

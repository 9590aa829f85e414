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

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab import wire
from lab.results import store

FILE = "completeness.json"
DROPS = {
    "dropped_kernel": "the kernel dropped {:,} frames, tcpdump's buffer was full",
    "dropped_interface": "the capture interface dropped {:,} frames",
    "softnet_dropped": "the capturing machine's backlog dropped {:,} frames",
    "left_behind": "tcpdump left {:,} received frames behind when it was stopped",
}
Document = dict[str, Any]


def write(directory: Path) -> None:
    """Judge the capture of a trial, if it has one, and write completeness.json."""
    if (directory / "capture.json").exists():
        store.write_json(directory / FILE, _read_captures(directory))


def read(directory: Path) -> Document:
    """The verdict on a trial's capture, judged now if it was never stored; empty without a capture."""
    if not (directory / "capture.json").exists():
        return {}
    return store.read_json(directory / FILE) or _read_captures(directory)


def line(verdict: Mapping[str, Any]) -> str:
    """What was lost, in one line; empty if nothing was."""
    if verdict.get("verdict") != "lost":
        return ""
    return f"The capture is incomplete: {'; '.join(verdict['reasons'])}"


def judge(report: Mapping[str, Any], streams: Mapping[str, Any], messages: int) -> Document:
    """The verdict, from capture.json and from what ``lab.wire`` says of the streams' completeness."""
    numbers = {key: report.get(key) for key in ("frames", "dropped_kernel", "dropped_interface")}
    numbers |= {key: report.get(key) for key in ("softnet_dropped", "left_behind")}
    numbers["received"] = _received(report)
    numbers |= {"stream_seen": streams.get("stream_seen"), "lost_bytes": streams.get("lost_by_capture_bytes")}
    numbers |= {"messages": messages, "decoded": streams.get("decoded")}
    reasons = list(_reasons(report, numbers))
    verdict = "lost" if reasons else "complete"
    return {"schema": store.SCHEMA, "verdict": verdict, "reasons": reasons, **numbers}


def _read_captures(directory: Path) -> Document:
    """The verdict from the files themselves; what is wrong with a file is a reason."""
    report, files = store.read_json(directory / "capture.json"), sorted(directory.glob("capture*.pcap"))
    try:
        capture = wire.open_capture(files)
    except wire.WireError as error:
        return _with(judge(report, {}, 0), [str(error)])
    broken = [f"{Path(f.path).name}: {f.progress.problem}" for f in capture.files if f.progress.problem]
    missing = [] if files else ["its files are missing"]
    return _with(judge(report, wire.completeness(capture), len(capture.messages)), broken + missing)


def _with(verdict: Document, reasons: list[str]) -> Document:
    if not reasons:
        return verdict
    return verdict | {"verdict": "lost", "reasons": verdict["reasons"] + reasons}


def _received(report: Mapping[str, Any]) -> int | None:
    counts = [tier.get("received") for tier in report.get("tiers", [])]
    return None if None in counts or not counts else sum(counts)


def _reasons(report: Mapping[str, Any], numbers: Mapping[str, Any]) -> Iterator[str]:
    if numbers["frames"] is None:
        yield "tcpdump did not say what it captured"
    if report.get("expired"):
        yield "tcpdump ended before the runs did"
    yield from (words.format(numbers[key]) for key, words in DROPS.items() if numbers[key])
    for counter, count in sorted(report.get("nic_statistics", {}).items()):
        if counter.startswith("rx_") and counter.endswith(("_dropped", "_errors")):
            yield f"the capture interface counted {count:,} {counter}"
    if numbers["lost_bytes"]:
        yield f"{numbers['lost_bytes']:,} bytes were acknowledged but are not in the files"

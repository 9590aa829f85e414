"""Does a trial's capture hold what had to be there? Counters, streams and the cluster are asked, once.

No single counter knows: tcpdump's does not see what a bridge or the kernel's backlog dropped, and the kernel
counts a frame that tcpdump never wrote as received. A byte that its receiver acknowledged but that the files
do not hold was lost, whoever lost it. And where frames of others never reach the capturing host, nothing is
dropped and nothing acknowledged: only that the runs got through says that the workers spoke, and their NICs'
counters how much. The verdict is kept in the trial's directory as completeness.json:

==================  ===============================================================================
verdict             complete, lost (in parts) or blind (the capturing host was not given the frames);
                    ``reasons``: why, in words, empty if it is complete
frames              in the files; ``received``: what passed tcpdump's filter
dropped_kernel      tcpdump's buffer was full; ``dropped_interface``, ``softnet_dropped``: before it
left_behind         received, not dropped, not in the files: tcpdump was stopped too early
stream_seen         share of the bytes of Dask's streams that the files show, 0 to 1
lost_bytes          of the others, those that a receiver acknowledged
messages            Dask's; ``decoded``: the share of them that was understood, 0 to 1
sent_bytes          what the workers send in as many runs, by their NICs' counters in the timed ones
seen_bytes          of that, what is in the files
==================  ===============================================================================

Numbers that nobody told are null.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dasklab.errors import LabError
from dasklab.model.files import CaptureReport, Completeness, Hosts, Timings
from dasklab.model.number_format import format_number
from dasklab.notices import warn
from dasklab.results.storage import recording, store
from dasklab.results.storage.damage import capture_gaps
from dasklab.results.storage.recording import Recording

DROPS = {
    "dropped_kernel": "the kernel dropped {:,} frames, tcpdump's buffer was full",
    "dropped_interface": "the capture interface dropped {:,} frames",
    "softnet_dropped": "the capturing machine's backlog dropped {:,} frames",
    "left_behind": "tcpdump left {:,} received frames behind when it was stopped",
}
# Of what is sent in other runs of the same work: on seven workloads 0.88 to 1.09 was measured where all of it
# was captured, 0.00 to 0.44 where what workers sent to each other was missing and was most of it.
LEAST_SHARE = 0.5
SCHEDULER = "scheduler"  # as ``daskwire`` calls it
MEND = (
    "let the capturing host see all frames (a flooding bridge, a mirror port of the switch),"
    " or capture on each host and give `dasklab wire` all the files"
)


def write(directory: Path) -> None:
    """Judge the capture of a trial, if it has one, and write completeness.json."""
    if found := _examine(directory):
        store.write(directory, found)


def read(directory: Path) -> Completeness | None:
    """The verdict on a trial's capture, judged now if it was never stored; None without a capture."""
    try:
        stored = store.read(Completeness, directory) or _examine(directory)
    except LabError as error:
        warn(f"{error.message}; the capture is judged again")
        stored = _examine(directory)
    return _with_gaps(directory, stored) if stored else None


def line(found: Completeness | None) -> str:
    """What is missing and, if it can be mended, how: in one line; empty if nothing is."""
    if found is None or found.verdict == "complete":
        return ""
    reasons = "; ".join(found.reasons)
    if found.verdict == "blind":
        return f"The capture is blind: {reasons}. What to do: {MEND}"
    return f"The capture is incomplete: {reasons}"


def _with_gaps(directory: Path, stored: Completeness) -> Completeness:
    """The verdict as it is after files of the capture were lost."""
    gaps = capture_gaps(directory)
    if not gaps:
        return stored
    verdict = "blind" if stored.verdict == "blind" else "lost"
    return stored.model_copy(update={"verdict": verdict, "reasons": (*stored.reasons, *gaps)})


def examine(capture: Recording, timed: Timings | None, machines: Hosts | None) -> Completeness:
    """The verdict; ``timed`` and ``machines`` are the trial's runs without a capture, and what they cost."""
    report, summary = capture.report, capture.summary
    sent_bytes, seen_bytes = _sent_bytes(report.timings, timed, machines), _seen_bytes(capture)
    lost = (*_lost(report, summary.completeness.get("lost_by_capture_bytes")), *summary.problems)
    cut_short = report.expired or report.frames is None or summary.problems
    blind = () if cut_short else tuple(_blind(capture, sent_bytes, seen_bytes))
    return Completeness(
        verdict="blind" if blind else "lost" if lost else "complete",
        reasons=(*blind, *lost),
        frames=report.frames,
        received=_received(report),
        dropped_kernel=report.dropped_kernel,
        dropped_interface=report.dropped_interface,
        softnet_dropped=report.softnet_dropped,
        left_behind=report.left_behind,
        stream_seen=summary.completeness.get("stream_seen"),
        lost_bytes=_whole(summary.completeness.get("lost_by_capture_bytes")),
        messages=summary.messages,
        decoded=summary.completeness.get("decoded"),
        sent_bytes=sent_bytes,
        seen_bytes=seen_bytes,
    )


def _examine(directory: Path) -> Completeness | None:
    capture = recording.read(directory)
    if capture is None:
        return None
    return examine(capture, store.read(Timings, directory), store.read(Hosts, directory))


def _sent_bytes(captured: Timings, timed: Timings | None, machines: Hosts | None) -> int | None:
    """What the captured runs should have made the workers send, given what the timed ones did."""
    workers = captured.cluster.names.values()
    hosts = machines.hosts if machines else {}
    counters = [hosts[name].lab_statistics.get("tx_bytes") for name in workers if name in hosts]
    known = [count for count in counters if count is not None]
    if not workers or len(known) < len(workers) or timed is None or not timed.samples:
        return None
    return round(sum(known) * len(captured.samples) / len(timed.samples))


def _seen_bytes(capture: Recording) -> int:
    workers = capture.report.timings.cluster.names.values()
    return sum(row["ip_bytes"] for row in capture.rows("matrix") if row["source"] in workers)


def _blind(capture: Recording, sent_bytes: int | None, seen_bytes: int) -> Iterator[str]:
    """The one cause, at its plainest; that the runs got through says that all of the cluster spoke."""
    number_of_runs = len(capture.report.timings.samples)
    runs = f"{number_of_runs} run{'s' if number_of_runs != 1 else ''}"
    sent = f", though the workers send about {_mb(sent_bytes)} in {runs}" if sent_bytes else ""
    unheard = ", ".join(_unheard(capture))
    if not capture.summary.messages:
        yield f"none of its {capture.report.frames:,} frames is Dask's{sent}"
    elif unheard:
        yield f"it does not hold what the scheduler and {unheard} said to each other"
    elif sent_bytes and seen_bytes < LEAST_SHARE * sent_bytes:
        yield f"it holds {_mb(seen_bytes)} of about {_mb(sent_bytes)} that the workers send in {runs}"


def _unheard(capture: Recording) -> list[str]:
    """Workers that did not both say something to the scheduler and hear something from it."""
    spoke = {(row["source"], row["destination"]) for row in capture.rows("matrix") if row["payload_bytes"]}
    workers = capture.report.timings.cluster.names.values()
    return [name for name in workers if not {(name, SCHEDULER), (SCHEDULER, name)} <= spoke]


def _mb(size: int) -> str:
    return f"{format_number(size / 1e6)} MB"


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _received(report: CaptureReport) -> int | None:
    counts = [tier.received for tier in report.tiers if tier.received is not None]
    return sum(counts) if report.tiers and len(counts) == len(report.tiers) else None


def _lost(report: CaptureReport, lost_bytes: float | None) -> Iterator[str]:
    if report.frames is None:
        yield "tcpdump did not say what it captured"
    if report.expired:
        yield "tcpdump ended before the runs did"
    yield from (text.format(getattr(report, key)) for key, text in DROPS.items() if getattr(report, key))
    for counter, count in sorted(report.nic_statistics.items()):
        if counter.startswith("rx_") and counter.endswith(("_dropped", "_errors")):
            yield f"the capture interface counted {count:,.0f} {counter}"
    if lost_bytes:
        yield f"{lost_bytes:,.0f} bytes were acknowledged but are not in the files"

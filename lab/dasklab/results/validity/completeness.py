"""Whether a trial's capture holds all it should: counters, streams and the cluster are consulted, once.

No single counter is enough. tcpdump does not see what a bridge or the kernel's backlog dropped, and the
kernel counts a frame that tcpdump never wrote as received. A byte that its receiver acknowledged, but that is
not in the files, was lost, whoever lost it. And if frames of other hosts never reach the capturing host,
nothing is dropped and nothing acknowledged: only the completed repeats show that the workers communicated,
and their NICs' counters how much. The verdict is stored in the trial's directory as completeness.json:

==================  ===============================================================================
verdict             complete, lost (parts are missing) or blind (the capturing host did not get the
                    frames); ``reasons``: why, empty if it is complete
frames              in the files; ``received``: passed tcpdump's filter
dropped_kernel      tcpdump's buffer was full; ``dropped_interface``, ``softnet_dropped``: before it
left_behind         received, not dropped, not in the files: tcpdump was stopped too early
stream_seen         share of the bytes of Dask's streams that the files hold, 0 to 1
lost_bytes          of the others, those that a receiver acknowledged
messages            of Dask; ``decoded``: the share of them that was decoded, 0 to 1
sent_bytes          what the workers send in as many repeats, by their NICs' counters in the timed repeats
seen_bytes          of that, what is in the files
==================  ===============================================================================

Unknown numbers are null.
"""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.errors import LabError
from dasklab.model.files import CaptureReport, Completeness, Hosts, Timings
from dasklab.model.forms.number_format import format_number
from dasklab.notices import warn
from dasklab.results.recording import Recording
from dasklab.results.run import Trial
from dasklab.terminal import counted

DROPS = {
    "dropped_kernel": "the kernel dropped {:,} frames, tcpdump's buffer was full",
    "dropped_interface": "the capture interface dropped {:,} frames",
    "softnet_dropped": "the capturing host's backlog dropped {:,} frames",
    "left_behind": "tcpdump left {:,} received frames behind when it was stopped",
}
# Of what workers send in other repeats of the same work. On seven workloads, complete captures held a share
# of 0.88 to 1.09; captures without the traffic between workers, where that was most of it, 0.00 to 0.44.
LEAST_SHARE = 0.5
SCHEDULER = "scheduler"  # as ``daskwire`` names it
REMEDY = (
    "let the capturing host see all frames (a flooding bridge, a mirror port of the switch),"
    " or capture on each host and pass all files to `dasklab wire`"
)


def write(trial: Trial) -> None:
    """Judge the capture of a trial, if it has one, and write completeness.json."""
    if completeness := _examine(trial):
        trial.write(completeness)


def read(trial: Trial) -> Completeness | None:
    """Return the verdict on a trial's capture, judged now if it is not stored; None without a capture."""
    try:
        stored = trial.read(Completeness) or _examine(trial)
    except LabError as error:
        warn(f"{error.message}; the capture is judged again")
        stored = _examine(trial)
    return _with_gaps(trial, stored) if stored else None


def line(completeness: Completeness | None) -> str:
    """Return in one line what is missing and how to remedy it; empty if nothing is missing."""
    if completeness is None or completeness.verdict == "complete":
        return ""
    reasons = "; ".join(completeness.reasons)
    if completeness.verdict == "blind":
        return f"The capture is blind: {reasons}. What to do: {REMEDY}"
    return f"The capture is incomplete: {reasons}"


def _with_gaps(trial: Trial, stored: Completeness) -> Completeness:
    """Return the verdict after files of the capture were lost."""
    gaps = trial.capture_gaps
    if not gaps:
        return stored
    verdict = "blind" if stored.verdict == "blind" else "lost"
    return stored.model_copy(update={"verdict": verdict, "reasons": (*stored.reasons, *gaps)})


def examine(capture: Recording, timed: Timings | None, hosts: Hosts | None) -> Completeness:
    """Judge a capture.

    Args:
        capture: the capture, decoded.
        timed: the trial's timed repeats, which were not captured.
        hosts: the counters of the hosts during the timed repeats.
    """
    report, summary = capture.report, capture.summary
    sent_bytes, seen_bytes = _sent_bytes(report.timings, timed, hosts), _seen_bytes(capture)
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


def _examine(trial: Trial) -> Completeness | None:
    return examine(trial.capture, trial.timings, trial.hosts) if trial.capture else None


def _sent_bytes(captured: Timings, timed: Timings | None, hosts: Hosts | None) -> int | None:
    """Estimate what the workers sent in the captured repeats from what they sent in the timed ones."""
    workers = captured.cluster.names.values()
    facts = hosts.hosts if hosts else {}
    counters = [facts[name].lab_statistics.get("tx_bytes") for name in workers if name in facts]
    counts = [count for count in counters if count is not None]
    if not workers or len(counts) < len(workers) or timed is None or not timed.samples:
        return None
    return round(sum(counts) * len(captured.samples) / len(timed.samples))


def _seen_bytes(capture: Recording) -> int:
    workers = capture.report.timings.cluster.names.values()
    return sum(row["ip_bytes"] for row in capture.rows("matrix") if row["source"] in workers)


def _blind(capture: Recording, sent_bytes: int | None, seen_bytes: int) -> Iterator[str]:
    """Yield the clearest sign that frames never arrived; the repeats completed, so all hosts communicated."""
    number = len(capture.report.timings.samples)
    repeats = counted(number, "repeat")
    though = f", though the workers send about {_mb(sent_bytes)} in {repeats}" if sent_bytes else ""
    silent = ", ".join(_silent_workers(capture))
    if not capture.summary.messages:
        yield f"none of its {capture.report.frames:,} frames is Dask's{though}"
    elif silent:
        yield f"it does not hold the messages between the scheduler and {silent}"
    elif sent_bytes and seen_bytes < LEAST_SHARE * sent_bytes:
        yield f"it holds {_mb(seen_bytes)} of about {_mb(sent_bytes)} that the workers send in {repeats}"


def _silent_workers(capture: Recording) -> list[str]:
    """Return the workers that did not both send something to the scheduler and get something from it."""
    ways = {(row["source"], row["destination"]) for row in capture.rows("matrix") if row["payload_bytes"]}
    workers = capture.report.timings.cluster.names.values()
    return [name for name in workers if not {(name, SCHEDULER), (SCHEDULER, name)} <= ways]


def _mb(size: int) -> str:
    return f"{format_number(size / 1e6)} MB"


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _received(report: CaptureReport) -> int | None:
    counts = [tier.received for tier in report.tiers if tier.received is not None]
    return sum(counts) if report.tiers and len(counts) == len(report.tiers) else None


def _lost(report: CaptureReport, lost_bytes: float | None) -> Iterator[str]:
    if report.frames is None:
        yield "tcpdump did not report what it captured"
    if report.expired:
        yield "tcpdump ended before the repeats did"
    yield from (text.format(getattr(report, key)) for key, text in DROPS.items() if getattr(report, key))
    for counter, count in sorted(report.nic_statistics.items()):
        if counter.startswith("rx_") and counter.endswith(("_dropped", "_errors")):
            yield f"the capture interface counted {count:,.0f} {counter}"
    if lost_bytes:
        yield f"{lost_bytes:,.0f} bytes were acknowledged but are not in the files"

"""Detect what limits the analysis: undecoded, encrypted or incomplete captures, and wrong capture points."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskwire.dask.content import MessageKind
from daskwire.net.skipped import FRAGMENTS
from daskwire.problems.addresses import one_way
from daskwire.problems.finding import Finding, percent
from daskwire.problems.view import View
from daskwire.tables.completeness import ENCRYPTED, completeness
from daskwire.tables.summary import likely_tunnels, not_decoded, snaplen

LOST_SHARE, CUT_SHARE, SKIPPED_SHARE = 0.01, 0.02, 0.01
UNSEEN_TRANSFERS = 3  # that workers report, and that the capture does not contain
TRANSFERS = {"get_data", "shuffle_receive"}
CLIENT_OPS = {"update-graph", "update-graph-hlg", "key-in-memory"}


def captures(view: View) -> Iterator[Finding]:
    yield from _undecoded(view)
    yield from _encrypted(view)
    yield from _capture_point(view)
    yield from _incomplete(view)
    yield from _files(view)


def _undecoded(view: View) -> Iterator[Finding]:
    """Yield why packets were not decoded, if there is no Dask at all."""
    capture = view.capture
    reasons = {**likely_tunnels(capture), **not_decoded(capture)}
    if fragments := capture.skipped[FRAGMENTS]:
        reasons[FRAGMENTS] = fragments
    if not reasons:
        return
    number = sum(reasons.values())
    what = f"{number:,} of {capture.packets:,} packets: " + ", ".join(
        f"{n} {k:,}" for n, k in reasons.items()
    )
    if not capture.conversations:
        yield Finding("undecoded capture", what, number=number)
    else:
        is_note = number < SKIPPED_SHARE * capture.packets
        yield Finding("incomplete capture", f"not decoded: {what}", number=number, is_note=is_note)


def _encrypted(view: View) -> Iterator[Finding]:
    capture = view.capture
    hidden = [c for c, protocol in capture.other_protocols.items() if protocol in ENCRYPTED]
    if not hidden:
        return
    flow_bytes = np.bincount(
        capture.segments.flow, capture.segments.length, minlength=2 * len(capture.connections)
    )
    size = int(sum(flow_bytes[2 * c] + flow_bytes[2 * c + 1] for c in hidden))
    decoded = int(capture.messages.size.sum())
    protocols = " and ".join(sorted({capture.other_protocols[c] for c in hidden}))
    what = f"{len(hidden)} {protocols} connections with {size:,} bytes were not decoded"
    flows = tuple(2 * c for c in hidden)
    yield Finding("TLS without keys", what, number=len(hidden), flows=flows, is_note=size < decoded)


def _capture_point(view: View) -> Iterator[Finding]:
    """Yield what Dask's messages prove to have happened, but the capture does not contain."""
    what = _only_one_direction(view)
    if not what and not _is_cut(view):  # else what was not seen may be in the missing content
        what = _unseen_workers(view) or _unseen_transfers(view)
    if what:
        yield Finding("wrong capture point", what, certainty=0.9)


def _is_cut(view: View) -> bool:
    """Return whether the snaplen cost the content of more than a few messages."""
    messages = view.capture.messages
    return int((messages.kind == MessageKind.CUT).sum()) >= CUT_SHARE * max(len(messages), 1)


def _only_one_direction(view: View) -> str:
    single, complete = one_way(view)
    return (
        f"{len(single)} connections have packets in one direction only" if len(single) > 9 * complete else ""
    )


def _unseen_workers(view: View) -> str:
    """Compare the workers that Dask's messages name with those that talk to the scheduler in the capture."""
    capture = view.capture
    ops = set(capture.messages.op_name)
    if ops & CLIENT_OPS and not ops & {"compute-task", "task-finished", "task-erred"}:
        return "clients compute, but no message between a scheduler and its workers is in the capture"
    peers = {
        capture.nodes.processes.get(capture.senders[flow], capture.senders[flow])
        for flow in view.flows
        if capture.senders[flow ^ 1] in capture.nodes.schedulers
    }
    workers = {e for e in capture.nodes.listening if e not in capture.nodes.schedulers}
    names = {capture.nodes.listening[e] for e in workers}
    present = {capture.nodes.listening[e] for e in workers & peers}
    if not capture.nodes.schedulers or not names - present or not present:
        return ""
    return (
        f"{len(names - present)} of {len(names)} workers have no connection with the scheduler in the capture"
    )


def _unseen_transfers(view: View) -> str:
    """Compare the transfers that workers report with those in the capture."""
    tasks, table = view.capture.table("tasks"), view.transfers
    reported = sum(1 for transfer_ms in tasks["transfer_ms"] if transfer_ms)
    schedulers = set(view.capture.scheduler_names.values())
    columns = zip(table["source"], table["destination"], table["kind"], strict=True)
    captured = sum(kind in TRANSFERS and not schedulers & set(ends) for *ends, kind in columns)
    if reported < UNSEEN_TRANSFERS or captured:
        return ""
    return f"workers report {reported} tasks with transfers from other workers, of which none was captured"


def _incomplete(view: View) -> Iterator[Finding]:
    capture, figures = view.capture, completeness(view.capture)
    flows = capture.table("flows")
    stream, lost = sum(flows["stream_bytes"]), sum(flows["lost_bytes"])
    if lost:
        missing = figures["messages_missing"]
        share = percent(lost / stream)
        what = f"{lost:,} of {stream:,} stream bytes ({share}) were acknowledged but not captured"
        what += f"; about {missing:,} messages are missing" if missing else ""
        is_note = lost < LOST_SHARE * stream
        yield Finding("incomplete capture", what, number=lost, is_note=is_note)
    if cut := snaplen(capture):
        is_note = not _is_cut(view) and not cut["unframed_bytes"]
        what = (
            f"{cut['packets']:,} packets were truncated to {cut['kept_bytes']:,} bytes: {cut['messages']:,}"
            f" messages have no content, {cut['unframed_bytes']:,} bytes no message; tcpdump -s 0 keeps all,"
            " -s 1024 enough"
        )
        yield Finding("incomplete capture", what, number=cut["packets"], is_note=is_note)
    for name, what in (
        ("began_before", f"of {len(capture.conversations):,} Dask connections began before the capture"),
        ("unrecognised", "connections began before the capture and were not recognised"),
    ):
        if figures[name]:
            yield Finding(
                "incomplete capture", f"{figures[name]:,} {what}", number=figures[name], is_note=True
            )


def _files(view: View) -> Iterator[Finding]:
    for file in view.capture.files:
        if file.progress.problem:
            yield Finding(
                "incomplete capture",
                f"{file.path}: {file.progress.problem}",
                is_note=not file.progress.damaged,
            )
        if file.progress.dropped:
            what = f"{file.path}: the capturing program lost {file.progress.dropped:,} packets"
            few = file.progress.dropped < LOST_SHARE * max(view.capture.packets, 1)
            number = file.progress.dropped
            yield Finding("incomplete capture", what, number=number, is_note=few)
        if file.progress.disordered:
            what = (
                f"{file.path}: {file.progress.disordered:,} packets were out of order and were sorted by time"
            )
            yield Finding("disordered file", what, number=file.progress.disordered, is_note=True)

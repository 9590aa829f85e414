"""Say whether a capture has problems, has none, or contains nothing that could be judged, and why."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import numpy as np

from daskwire.analysis.problems.finding import counted
from daskwire.analysis.problems.kinds import KINDS
from daskwire.analysis.tables.completeness import completeness
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.framing.content import MessageKind
from daskwire.decoder.file import tcpdump

UNJUDGED = (MessageKind.CUT, MessageKind.UNDECODED, MessageKind.HANDSHAKE)  # they show no work of a cluster


class Answer(Enum):
    NOTHING_TO_JUDGE = "nothing to judge"
    NO_PROBLEM = "no problem found"
    PROBLEMS = "problems found"


@dataclass(frozen=True)
class Basis:
    """What an answer rests on.

    Attributes:
        hosts: number of IP addresses in TCP segments.
        seconds: from the first packet to the last one.
        messages: number of decoded Dask messages.
        stream_seen: share of the Dask streams' bytes that is in the capture, None without Dask.
        dask_share: share of the TCP payload in connections that were decoded as Dask, None without payload.
    """

    hosts: int
    seconds: float
    messages: int
    stream_seen: float | None
    dask_share: float | None


@dataclass(frozen=True)
class Verdict:
    """The answer for a capture.

    Attributes:
        answer: one of three.
        reasons: why there is nothing to judge; else empty.
        basis: what the answer rests on.
    """

    answer: Answer
    reasons: tuple[str, ...]
    basis: Basis


def judge(capture: Capture, ignored: Collection[str] = ()) -> Verdict:
    """Answer for a whole capture, from its table of problems without those of the kinds ``ignored``.

    A problem of the capture itself, such as encryption, is a reason why there is nothing to judge, unless
    Dask messages were decoded. Any other problem is an answer without them: a refused connect needs none.
    """
    table, basis = capture.table("problems"), _basis(capture)
    columns = zip(table["severity"], table["problem"], table["what"], strict=True)
    problems = [
        (kind, what) for severity, kind, what in columns if severity == "problem" and kind not in ignored
    ]
    if any(basis.messages or not KINDS[kind].is_about_capture for kind, _ in problems):
        return Verdict(Answer.PROBLEMS, (), basis)
    if basis.messages:
        return Verdict(Answer.NO_PROBLEM, (), basis)
    obstacles = tuple(f"{kind}: {what}" for kind, what in problems)
    return Verdict(Answer.NOTHING_TO_JUDGE, (*_absences(capture), *obstacles), basis)


def _basis(capture: Capture) -> Basis:
    segments, connections, tally = capture.segments, capture.connections, capture.tally
    active = np.unique(segments.flow >> 1).tolist()
    ends = [connections.endpoints(2 * connection) for connection in active]
    payload = np.bincount(segments.flow >> 1, segments.length, minlength=len(connections))
    dask = int(payload[sorted(capture.conversations)].sum()) if capture.conversations else 0
    decoded = ~np.isin(capture.messages.kind, UNJUDGED)
    return Basis(
        hosts=len({address for a, _, b, _ in ends for address in (a, b)}),
        seconds=max(tally.last_ns - tally.first_ns, 0) / 1e9 if tally.packets else 0.0,
        messages=int(decoded.sum()),
        stream_seen=completeness(capture)["stream_seen"],
        dask_share=dask / int(payload.sum()) if payload.any() else None,
    )


def _absences(capture: Capture) -> list[str]:
    """Say what a capture without decoded messages lacks."""
    segments = capture.segments
    if not capture.packets:
        return ["the capture has no packets"]
    if not len(segments):
        return [f"no TCP segment in {counted(capture.packets, 'packet')}"]
    cut = np.flatnonzero(segments.captured < segments.length)
    if len(cut):
        kept_bytes = int(
            (segments.frame_bytes[cut].astype(np.int64) - segments.length[cut] + segments.captured[cut]).max()
        )
        return [
            f"no Dask message, and {counted(len(cut), 'packet')} are truncated to {kept_bytes:,} bytes;"
            f" record with {tcpdump.RECORD}"
        ]
    number = len(np.unique(segments.flow >> 1))
    return [f"no Dask message in {counted(number, 'TCP connection')}"]

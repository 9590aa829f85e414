"""Schedulers whose event loop is busy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import Interval, hull, overlap, seconds
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, counted, is_cheap
from daskwire.base.arrays import NONE
from daskwire.decoder.net.segments import ACK, RST

MAX_ANSWER_MS = 300.0  # a later answer to a heartbeat waited for the event loop


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield schedulers that answer heartbeats late, unless the network delayed them."""
    messages = evidence.capture.messages
    groups: defaultdict[str, list[tuple[Interval, int]]] = defaultdict(list)
    for message in messages.op_message[messages.ops_named({"heartbeat_worker"})].tolist():
        flow, answer = int(messages.flow[message]), int(messages.answer[message])
        cluster, worker, _ = evidence.pairs[flow]
        if answer == NONE or not (wait := _wait(evidence, flow, message, answer)):
            continue
        if evidence.during_work(cluster, wait) and overlap(wait, evidence.stalls[worker]) < 0.5:
            groups[cluster].append((wait, flow))
    for cluster, late in sorted(groups.items()):
        waits, flows = [wait for wait, _ in late], tuple(sorted({flow for _, flow in late}))
        longest_ms = max(end - begin for begin, end in waits) / 1e6
        workers = len({evidence.pairs[flow][1] for flow in flows})
        what = (
            f"answered {counted(len(late), 'heartbeat')} of {counted(workers, 'worker')} after more than"
            f" {MAX_ANSWER_MS:.0f} ms (up to {longest_ms:,.0f} ms)"
        )
        pair = cluster, evidence.capture.scheduler_names.get(cluster, ""), ""
        cost_s = seconds(waits)
        yield Finding(KIND, what, pair, hull(waits), cost_s, 0.9, len(late), flows, is_cheap(cost_s))


def _wait(evidence: Evidence, flow: int, message: int, answer: int) -> Interval | None:
    """Return how long a heartbeat waited for the scheduler's loop, if that was long.

    Its kernel acknowledges the heartbeat at once. Whatever delays this ACK as well is the network.
    """
    segments, messages = evidence.capture.segments, evidence.capture.messages
    end_ns, answer_ns = int(messages.end_ns[message]), int(messages.time_ns[answer])
    if answer_ns - end_ns <= MAX_ANSWER_MS * 1e6:
        return None
    data = evidence.data_rows([flow])
    last = data[np.searchsorted(segments.time_ns[data], end_ns, side="right") - 1]
    acks = evidence.rows(flow ^ 1)
    acks = acks[(segments.time_ns[acks] >= end_ns) & (segments.flags[acks] & (ACK | RST) == ACK)]
    beyond = (segments.ack[acks] - (segments.seq[last] + segments.length[last])).astype(np.int32)
    answers = acks[beyond >= 0]
    start_ns = int(segments.time_ns[answers[0]]) if len(answers) else end_ns
    return (start_ns, answer_ns) if answer_ns - start_ns > MAX_ANSWER_MS * 1e6 else None


KIND = Kind(
    name="slow scheduler loop",
    meaning="The scheduler's event loop is busy, so all its peers wait for answers.",
    threshold=(
        "heartbeats waited for an answer for more than 0.3 s after the scheduler's host had acknowledged"
        f" them, and {COSTLY_S} s in all"
    ),
    advice="Profile the scheduler; look for large graphs, plugins and extensions.",
    effects=frozenset({"zero window"}) | DELAYS,
    detect=detect,
)

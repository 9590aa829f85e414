"""Packets that wait in a long queue whenever a link is busy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.delays import PAUSE_NS, looks_delayed
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS, Interval, hull, merged
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, notes_if_cheap
from daskwire.base.arrays import Flags, Ints
from daskwire.decoder.net.health import Samples

QUEUE_NS = 50_000_000
LOAD_BYTES = 64 << 10  # a busy link has more in flight
MIN_SAMPLES = 8
MAX_SILENT_SHARE = 0.5  # a sender that is silent for more of a wait pauses


def detect(evidence: Evidence) -> Iterator[Finding]:
    for samples, side in ((evidence.rtts, "behind"), (evidence.echoes, "before")):
        yield from notes_if_cheap(_queues(evidence, samples, side))


def _queues(evidence: Evidence, samples: Samples, side: str) -> Iterator[Finding]:
    """Yield pairs whose packets wait in a queue while data flows."""
    for pair, flows in evidence.flows_of.items():
        index = np.flatnonzero(np.isin(samples.flow, flows))
        if not len(index):
            continue
        base_ns = float(samples.rtt_ns[index].min())
        index = index[(samples.rtt_ns[index] > base_ns + QUEUE_NS) & ~looks_delayed(samples.rtt_ns[index])]
        index = index[_bytes_in_flight(evidence, samples, index, flows) > LOAD_BYTES]
        if side == "before":
            index = index[_is_queued(evidence, samples, index, flows)]
        waits = [(int(samples.time_ns[i] - samples.rtt_ns[i]), int(samples.time_ns[i])) for i in index]
        if len(waits) < MIN_SAMPLES or not evidence.while_running(pair[0], hull(waits)):
            continue
        cost_s = _waiting_s(evidence, flows, waits, samples.rtt_ns[index] - int(base_ns))
        median_ms, high_ms = (float(np.percentile(samples.rtt_ns[index], q)) / 1e6 for q in (50, 95))
        what = (
            f"under load the RTT is {median_ms:,.0f} ms (95th percentile {high_ms:,.0f} ms) instead of"
            f" {base_ns / 1e6:.2f} ms; the queue is {side} the capture point"
        )
        yield Finding(KIND, what, pair, hull(waits), cost_s, 0.8, len(waits), tuple(flows))


def _bytes_in_flight(evidence: Evidence, samples: Samples, index: Ints, flows: list[int]) -> Ints:
    """Return how many bytes the flows carried during each sample."""
    segments, rows = evidence.capture.segments, evidence.data_rows(flows)
    total = np.append(0, np.cumsum(segments.length[rows], dtype=np.int64))
    begin = np.searchsorted(segments.time_ns[rows], samples.time_ns[index] - samples.rtt_ns[index])
    return np.asarray(total[np.searchsorted(segments.time_ns[rows], samples.time_ns[index])] - total[begin])


def _is_queued(evidence: Evidence, samples: Samples, index: Ints, flows: list[int]) -> Flags:
    """Return which delays of a sender's echo are those of its queue.

    Meanwhile the link sends what is in front of it, so the flows are never silent for long; else the sender
    paused. And the peer sends no data: after data that is not acknowledged yet, a timestamp is not echoed
    (RFC 7323, 4.3).
    """
    sent_ns = evidence.capture.segments.time_ns[evidence.data_rows(flows)]
    peer_ns = evidence.capture.segments.time_ns[evidence.data_rows([flow ^ 1 for flow in flows])]
    queued = []
    for end, wait in zip(samples.time_ns[index].tolist(), samples.rtt_ns[index].tolist(), strict=True):
        inside = sent_ns[np.searchsorted(sent_ns, end - wait) : np.searchsorted(sent_ns, end)]
        silence = np.diff(inside, prepend=end - wait, append=end).max()
        peer = np.diff(np.searchsorted(peer_ns, [end - wait - PAUSE_NS, end]))
        queued.append(silence <= MAX_SILENT_SHARE * wait and not peer)
    return np.array(queued, bool)


def _waiting_s(evidence: Evidence, flows: list[int], waits: list[Interval], delay_ns: Ints) -> float:
    """Return how long messages waited in a queue: each one for the median delay at its time."""
    messages = evidence.capture.messages
    time_ns = np.sort(messages.time_ns[np.isin(messages.flow, flows)])
    begins = np.array([begin for begin, _ in waits])
    cost_ns = 0.0
    for begin, end in merged(waits, SECOND_NS // 5):
        number = int(np.diff(np.searchsorted(time_ns, [begin, end]))[0])
        cost_ns += number * float(np.median(delay_ns[(begins >= begin) & (begins <= end)]))
    return cost_ns / 1e9


KIND = Kind(
    name="bufferbloat",
    meaning="Packets wait in a long queue whenever a link is busy.",
    threshold=(
        f"under load the RTT is at least 50 ms longer than the smallest one, and that cost {COSTLY_S} s"
    ),
    advice="Shorten the queue (tc qdisc replace dev ... fq_codel), or limit the rate of the senders.",
    filter="tcp.analysis.ack_rtt > 0.05",
    effects=frozenset({"loss", "retransmission time-outs"}) | DELAYS,
    is_on_path=True,
    detect=detect,
)

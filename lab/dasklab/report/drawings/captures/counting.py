"""The study's figure 20, and how far its counting method is from the truth.

The study counted packets by the first op name in them. We apply the same method to our capture: as captured,
and as if segmentation offload had been off or on. We compare its count with the ops of the decoded messages.
Ops that the study did not look for are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from daskwire.analysis.tables.study import NAMES, OTHERS

from dasklab.model.forms.number_format import format_number
from dasklab.report.drawings.captures import drawings
from dasklab.report.drawings.captures.content import Content, TextTable, group
from dasklab.results.decode import CUT_BYTES, JOINED_BYTES, Packets
from dasklab.results.recording import Recording

CAPTURED = "as captured"
SIZES = {
    CAPTURED: "captured",
    f"cut at {CUT_BYTES:,} bytes": "cut",
    f"joined up to {JOINED_BYTES:,}": "joined",
}
RENAMED = {"free-keys": "delete-data"}  # the study's name for it
TASK = "compute-task"
FEWEST_OPS = 10  # a factor over fewer ops means nothing
LEAST_PCT = 1.0
WAYS = {
    ("scheduler", "workers"): "scheduler",
    ("scheduler", "client"): "scheduler",
    ("workers", "scheduler"): "workers to scheduler",
    ("workers", "workers"): "worker to worker",
}  # messages of the client are not counted
Key = tuple[str, str]  # way, op
Shares = dict[str, float]  # op -> share in %


@dataclass(frozen=True)
class Counts:
    """``true`` counts ops, and as "data" the messages without an op of the study; ``packets`` is by size."""

    true: Counter[Key]
    packets: dict[str, Counter[Key]]

    def factor(self, key: Key, size: str) -> float:
        """Return the number of packets counted for each op that was sent."""
        return self.packets[size][key] / self.true[key]

    def keys(self) -> list[Key]:
        """Return the frequent ops, by way and by frequency."""
        frequent = [key for key, count in self.true.items() if count >= FEWEST_OPS]
        ways = list(WAYS.values())
        return sorted(frequent, key=lambda key: (ways.index(key[0]), key[1] == OTHERS, -self.true[key]))


def describe(capture: Recording, study: Mapping[str, Any]) -> Content:
    """Describe figure 20 beside ours, the method's error by op, and the effect of segmentation on it."""
    counts = count(capture)
    keys = counts.keys()
    if not keys:
        return Content()
    compositions = _compositions(capture, counts, study)
    figures = {
        "composition": (
            "What each node sends, in % of its packets (study's method: packets with payload by the first of"
            " nine op names) or of its ops and messages without one (decoded). The names are those of 2019:"
            " today's free-keys was called delete-data, so the method finds none; the study's notebook found"
            " add-keys, but lost it to a mistake in its code. Frames between workers were captured in part,"
            " but their one op, get_data, is in the first bytes.",
            drawings.compositions(compositions),
        ),
        "counting": (
            "The study's method on our capture: packets counted for each op sent; under “data”, for each"
            " message without such an op. Only “as captured” was captured; the other two are computed from"
            " the same bytes, cut as a network card cuts them or joined as offload joins them.",
            drawings.factors({key: {s: counts.factor(key, s) for s in SIZES} for key in keys}),
        ),
    }
    sentences = [*_majority(compositions["scheduler"]), *_sentences(counts, keys)]
    return Content(sentences, figures, [_table(counts, keys)])


def count(capture: Recording) -> Counts:
    """Count the ops of the messages and, for each size of packets, as the study did."""
    true: Counter[Key] = Counter()
    for row in capture.rows("ops"):
        if row["op"] in NAMES and (way := _way(row["source"], row["destination"])):
            true[way, row["op"]] += 1
    for row in capture.rows("messages"):
        if not set(row["op"].split("+")) & set(NAMES) and (way := _way(row["source"], row["destination"])):
            true[way, OTHERS] += 1
    counted = capture.summary.counted
    return Counts(true, {label: _packets(counted.get(size, ())) for label, size in SIZES.items()})


def _packets(rows: Iterable[Packets]) -> Counter[Key]:
    packets: Counter[Key] = Counter()
    for row in rows:
        if way := _way(row.source, row.destination):
            packets[way, row.op] += row.packets
    return packets


def _way(source: str, destination: str) -> str:
    """Return the name of a way; empty if it is not counted."""
    return WAYS.get((group(source), group(destination)), "")


def _compositions(
    capture: Recording, counts: Counts, study: Mapping[str, Any]
) -> dict[str, dict[str, Shares]]:
    """Return the shares of the ops, by sender and by counting method."""
    theirs: dict[str, Counter[str]] = {"scheduler": Counter(), "workers": Counter()}
    for point in study["points"]:
        theirs[group(point["source"])][point["op"]] += point["packets"]
    method: dict[str, Counter[str]] = {sender: Counter() for sender in theirs}
    for (way, op), packets in counts.packets[CAPTURED].items():
        method[_sender(way)][op] += packets
    decoded: dict[str, Counter[str]] = {sender: Counter() for sender in theirs}
    for row in capture.rows("composition"):
        if (sender := group(row["source"])) in decoded:
            name = str(RENAMED.get(row["op"], row["op"]))
            decoded[sender][name if name in NAMES else OTHERS] += row["ops"]
    methods = {"2019 study": theirs, "its method, here": method, "decoded, here": decoded}
    return {
        sender: _group_rare({name: _shares(by_sender[sender]) for name, by_sender in methods.items()})
        for sender in theirs
    }


def _sender(way: str) -> str:
    return "scheduler" if way == "scheduler" else "workers"


def _shares(counts: Counter[str]) -> Shares:
    return {op: 100 * n / counts.total() for op, n in counts.items()}


def _group_rare(by_method: Mapping[str, Shares]) -> dict[str, Shares]:
    """Move ops that are rare by all methods to the others; order the rest by frequency."""
    top = {
        op: max(s.get(op, 0) for s in by_method.values()) for shares in by_method.values() for op in shares
    }
    frequent = [op for op in sorted(top, key=lambda o: -top[o]) if top[op] >= LEAST_PCT and op != OTHERS]
    return {
        name: {op: shares.get(op, 0.0) for op in frequent}
        | {OTHERS: sum(share for op, share in shares.items() if op not in frequent)}
        for name, shares in by_method.items()
    }


def _majority(scheduler: Mapping[str, Shares]) -> list[str]:
    """Check the study's claim that half of the scheduler's packets are tasks."""
    theirs, method, decoded = (shares.get(TASK, 0.0) for shares in scheduler.values())
    if not decoded:
        return []
    return [
        f"By the study's method {format_number(method)} % of the scheduler's packets are {TASK} (the study:"
        f" {format_number(theirs)} %). Of the ops that it sends, counting each op of a batch,"
        f" {format_number(decoded)} % are."
    ]


def _sentences(counts: Counts, keys: list[Key]) -> list[str]:
    ops = [key for key in keys if key[1] != OTHERS]
    sentences = []
    if ops:
        worst = min(ops, key=lambda key: counts.factor(key, CAPTURED))
        sentences.append(
            f"The method would count {counts.packets[CAPTURED][worst]:,} {worst[1]} instead of"
            f" {counts.true[worst]:,}, x {format_number(counts.factor(worst, CAPTURED))} of the truth."
        )
    data = ("worker to worker", OTHERS)
    captured, cut, joined = (counts.packets[size][data] for size in SIZES)
    if joined:
        sentences.append(
            f"Its “data” depends on offload: the same bytes between workers are {captured:,} packets as"
            f" captured, but {cut:,} if cut for the wire, x {format_number(cut / joined)} of those if joined."
        )
    return sentences


def _table(counts: Counts, keys: list[Key]) -> TextTable:
    rows = [
        [f"{way}: {op}", f"{counts.true[way, op]:,}"]
        + [
            f"{counts.packets[s][way, op]:,} (\u00d7{format_number(counts.factor((way, op), s))})"
            for s in SIZES
        ]
        for way, op in keys
    ]
    return TextTable("The study's counting, op by op", ["op", "decoded", *SIZES], rows)

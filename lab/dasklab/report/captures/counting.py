"""The study's figure 20, and how far its method is from the truth.

It counted packets by the first op name found in them. Here the same is counted on our capture, as captured
and as if segmentation offload had been off or on, beside the ops that the decoded messages hold. What lies in
the names and what lies in the packets is kept apart: an op of today that the study did not look for is
neither found nor missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from daskwire.tables.study import NAMES, OTHERS

from dasklab.model.number_format import format_number
from dasklab.report.captures import drawings
from dasklab.report.captures.content import Content, TextTable, group
from dasklab.results.storage.decode import CUT_BYTES, JOINED_BYTES, Packets
from dasklab.results.storage.recording import Recording

CAPTURED = "as captured"
SIZES = {
    CAPTURED: "captured",
    f"cut at {CUT_BYTES:,} bytes": "cut",
    f"joined up to {JOINED_BYTES:,}": "joined",
}
RENAMED = {"free-keys": "delete-data"}  # the study's name for it
TASK = "compute-task"
FEWEST_OPS = 10  # a factor over fewer says nothing
LEAST_PCT = 1.0
WAYS = {
    ("scheduler", "workers"): "scheduler",
    ("scheduler", "client"): "scheduler",
    ("workers", "scheduler"): "workers to scheduler",
    ("workers", "workers"): "worker to worker",
}  # what the client says is of no interest here
Key = tuple[str, str]  # way, op


@dataclass(frozen=True)
class Counts:
    """``true``: ops, as "data" the messages without one that the study looked for; ``packets`` by size."""

    true: Counter[Key]
    packets: dict[str, Counter[Key]]

    def factor(self, key: Key, size: str) -> float:
        """Packets counted for each one that was sent."""
        return self.packets[size][key] / self.true[key]

    def keys(self) -> list[Key]:
        """What was sent often enough, in the order of ways and of frequency."""
        often = [key for key, count in self.true.items() if count >= FEWEST_OPS]
        ways = list(WAYS.values())
        return sorted(often, key=lambda key: (ways.index(key[0]), key[1] == OTHERS, -self.true[key]))


def describe(capture: Recording, study: Mapping[str, Any]) -> Content:
    """Figure 20 beside ours, the method's error by op, and what segmentation does to it."""
    found = count(capture)
    keys = found.keys()
    if not keys:
        return Content()
    compositions = _compositions(capture, found, study)
    figures = {
        "composition": (
            "What each node sends, in % of its packets (study's method: packets with payload by the first of"
            " nine op names) or of its ops and op-less messages (decoded). The names are those of 2019:"
            " today's free-keys was delete-data then, so the method finds none; add-keys the notebook found,"
            " but lost to a mistake in its code. Frames between workers were cut short, but the one op said"
            " there, get_data, is in their first bytes.",
            drawings.compositions(compositions),
        ),
        "counting": (
            "The study's method on our capture: packets counted for each op sent; under “data”, for each"
            " message without such an op. Only “as captured” was captured; the other two are recomputed from"
            " the same bytes, cut as a network card cuts them or joined as offload leaves them.",
            drawings.factors({key: {s: found.factor(key, s) for s in SIZES} for key in keys}),
        ),
    }
    sentences = [*_majority(compositions["scheduler"]), *_sentences(found, keys)]
    return Content(sentences, figures, [_table(found, keys)])


def count(capture: Recording) -> Counts:
    """Count the messages' ops and, for each size of packets, as the study did."""
    true: Counter[Key] = Counter()
    for row in capture.rows("ops"):
        if row["op"] in NAMES and (way := _way(row["source"], row["destination"])):
            true[way, row["op"]] += 1
    for row in capture.rows("messages"):
        if not set(row["op"].split("+")) & set(NAMES) and (way := _way(row["source"], row["destination"])):
            true[way, OTHERS] += 1
    counted = capture.summary.counted
    return Counts(true, {label: _packets(counted.get(size, ())) for label, size in SIZES.items()})


def _packets(counted: Iterable[Packets]) -> Counter[Key]:
    found: Counter[Key] = Counter()
    for row in counted:
        if way := _way(row.source, row.destination):
            found[way, row.op] += row.packets
    return found


def _way(source: str, destination: str) -> str:
    """Who speaks to whom; empty for what is left out."""
    return WAYS.get((group(source), group(destination)), "")


def _compositions(
    capture: Recording, found: Counts, study: Mapping[str, Any]
) -> dict[str, dict[str, dict[str, float]]]:
    """Sender -> who counted how -> op -> share in %."""
    theirs: dict[str, Counter[str]] = {"scheduler": Counter(), "workers": Counter()}
    for point in study["points"]:
        theirs[group(point["source"])][point["op"]] += point["packets"]
    method: dict[str, Counter[str]] = {sender: Counter() for sender in theirs}
    for (way, op), packets in found.packets[CAPTURED].items():
        method[_sender(way)][op] += packets
    decoded: dict[str, Counter[str]] = {sender: Counter() for sender in theirs}
    for row in capture.rows("composition"):
        if (said_by := group(row["source"])) in decoded:
            name = str(RENAMED.get(row["op"], row["op"]))
            decoded[said_by][name if name in NAMES else OTHERS] += row["ops"]
    every = {"2019 study": theirs, "its method, here": method, "decoded, here": decoded}
    return {
        sender: _together({who: _shares(counts[sender]) for who, counts in every.items()})
        for sender in theirs
    }


def _sender(way: str) -> str:
    return "scheduler" if way == "scheduler" else "workers"


def _shares(counts: Counter[str]) -> dict[str, float]:
    return {op: 100 * n / counts.total() for op, n in counts.items()}


def _together(shares: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Ops that are rare in all the counts join the others; the most frequent comes first."""
    top = {op: max(mine.get(op, 0) for mine in shares.values()) for mine in shares.values() for op in mine}
    shown = [op for op in sorted(top, key=lambda o: -top[o]) if top[op] >= LEAST_PCT and op != OTHERS]
    return {
        who: {op: mine.get(op, 0.0) for op in shown}
        | {OTHERS: sum(share for op, share in mine.items() if op not in shown)}
        for who, mine in shares.items()
    }


def _majority(scheduler: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The study's claim that half of what the scheduler sends is tasks."""
    theirs, method, decoded = (shares.get(TASK, 0.0) for shares in scheduler.values())
    if not decoded:
        return []
    return [
        f"Counted the study's way {format_number(method)} % of the scheduler's packets are {TASK} (the study:"
        f" {format_number(theirs)} %). Of the ops that it sends, counting each op of a batch,"
        f" {format_number(decoded)} % are."
    ]


def _sentences(found: Counts, keys: list[Key]) -> list[str]:
    ops = [key for key in keys if key[1] != OTHERS]
    sentences = []
    if ops:
        worst = min(ops, key=lambda key: found.factor(key, CAPTURED))
        sentences.append(
            f"That way {worst[1]} would be {found.packets[CAPTURED][worst]:,} instead of"
            f" {found.true[worst]:,}, {format_number(found.factor(worst, CAPTURED))} times the truth."
        )
    data = ("worker to worker", OTHERS)
    captured, cut, joined = (found.packets[size][data] for size in SIZES)
    if joined:
        sentences.append(
            f"Its “data” depends on offload: the same bytes between workers are {captured:,} packets as"
            f" captured, but {cut:,} if cut for the wire, x {format_number(cut / joined)} of those if joined."
        )
    return sentences


def _table(found: Counts, keys: list[Key]) -> TextTable:
    rows = [
        [f"{way}: {op}", f"{found.true[way, op]:,}"]
        + [
            f"{found.packets[s][way, op]:,} (\u00d7{format_number(found.factor((way, op), s))})"
            for s in SIZES
        ]
        for way, op in keys
    ]
    return TextTable("The study's counting, op by op", ["what was said", "decoded", *SIZES], rows)

"""The study's figures 18 and 19: who sent how much to whom, and when. Shares and shapes, not speeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dasklab.model.forms.number_format import format_number
from dasklab.report.drawings import figures
from dasklab.report.drawings.captures import drawings
from dasklab.report.drawings.captures.content import Content, group
from dasklab.results.recording import Recording

OPS_SHOWN = 8
Pairs = dict[tuple[str, str], float]
Series = dict[tuple[str, str], dict[int, float]]  # (node, sent or received) -> second -> amount


def describe(capture: Recording, study: Mapping[str, Any]) -> Content:
    """Describe the traffic by pair of nodes and by second, and the ops that the scheduler sends."""
    ours = {(r["source"], r["destination"]): float(r["ip_bytes"]) for r in capture.rows("matrix")}
    theirs = {(p["source"], p["destination"]): p["mb"] for p in study["fig19"]["points"]}
    pairs, their_pairs = _shares(_of_cluster(ours)), _shares(theirs)
    ops = Counter(row["op"] for row in capture.rows("ops") if row["source"] == "scheduler")
    content = {}
    if pairs:
        content["traffic"] = (
            "Bytes by pair of nodes, without the client's, in % of all. The study's figure 19 left out the"
            " pair of workers 1 and 3 and swapped two labels; the numbers shown are those of its notebook.",
            drawings.matrices(pairs, their_pairs),
        )
        content["series"] = (
            "Traffic of each node by second, each curve in % of its own peak: shapes, not speeds. The bands"
            " are our runs. For the study's scheduler only the peaks can be read (figure 18).",
            drawings.series(_by_second(capture), _bands(capture), _their_series(study["fig18"])),
        )
    if ops:
        common = {op: 100 * count / ops.total() for op, count in ops.most_common(OPS_SHOWN)}
        content["ops"] = (
            f"The {ops.total():,} ops that the scheduler sends, counting each op of a batch.",
            figures.shares(common, {}, "% of the scheduler's ops"),
        )
    return Content(_sentences(ours, pairs, their_pairs), content)


def _of_cluster(pairs: Pairs) -> Pairs:
    """Return the pairs of scheduler and workers; the study had no others."""
    return {
        pair: n for pair, n in pairs.items() if {group(node) for node in pair} <= {"scheduler", "workers"}
    }


def _shares(pairs: Pairs) -> Pairs:
    total = sum(pairs.values())
    return {pair: 100 * amount / total for pair, amount in pairs.items()} if total else {}


def _among_workers(pairs: Pairs) -> float:
    return sum(amount for pair, amount in pairs.items() if {group(node) for node in pair} == {"workers"})


def _by_second(capture: Recording) -> Series:
    """Return the Mbit/s that each node sent and received, by second from the start of the first repeat."""
    first = capture.window_ns[0] // 1_000_000_000
    rates: Series = {}
    for row in capture.rows("series"):
        for node, way in ((row["source"], "sent"), (row["destination"], "received")):
            if group(node) in ("scheduler", "workers"):
                seconds = rates.setdefault((node, way), {})
                second = row["second"] - first
                seconds[second] = seconds.get(second, 0.0) + 8e-6 * row["ip_bytes"]
    return rates


def _bands(capture: Recording) -> list[tuple[float, float]]:
    first = capture.window_ns[0] // 1_000_000_000
    return [(start - first, stop - first) for start, stop in capture.repeats]


def _their_series(study: Mapping[str, Any]) -> Series:
    return {
        (p["node"], p["direction"]): (
            {int(second): mbit for second, mbit in p["peaks_mbit"].items()}
            if "peaks_mbit" in p
            else dict(enumerate(p["mbit"]))
        )
        for p in study["points"]
    }


def _sentences(ours: Pairs, pairs: Pairs, their_pairs: Pairs) -> list[str]:
    if not pairs:
        return []
    return [
        f"Workers sent each other {format_number(_among_workers(ours) / 1e6)} MB,"
        f" {format_number(_among_workers(pairs))} % of the cluster's bytes"
        f" (the study: {format_number(_among_workers(their_pairs))} %)."
    ]

"""What a captured trial said: who sent how much to whom, when, and which ops the scheduler's words were.

The capture files lie in the trial's directory; ``lab.wire`` reads them. The study counted packets by the
first op that it found in each; here ops are counted, those in batches included, so only the traffic is set
beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lab import results, wire
from lab.measures import number
from lab.report import figures

KINDS = ("worker to worker", "workers to scheduler", "scheduler to workers")
OPS_SHOWN = 8


@dataclass(frozen=True)
class Heard:
    """One capture: what it says in sentences, and its figures by stem and caption."""

    sentences: list[str]
    drawn: dict[str, tuple[str, Figure]]


def hear(directory: Path, study: Mapping[str, Any]) -> Heard | None:
    """Read the capture of a trial; None if it has none."""
    files = sorted(directory.glob("capture*.pcap"))
    if not files:
        return None
    capture = wire.open_capture(files, names=_names(directory))
    matrix, ops = (wire.rows(capture.table(table)) for table in ("matrix", "composition"))
    traffic, theirs = _by_kind(matrix, "ip_bytes"), _by_kind(study["fig19"]["points"], "mb")
    said = Counter({row["op"]: row["ops"] for row in ops if row["source"] == "scheduler"})
    drawn = {
        "traffic": (
            f"Bytes on the wire. Grey: the study's “{study['fig19']['title']}”.",
            figures.shares(_shares(traffic), _shares(theirs), "% of the cluster's bytes"),
        ),
        "series": ("Sent by each node, second by second.", figures.series(_rates(capture))),
        "ops": (
            "What the scheduler says, by op; each op in a batch counts.",
            figures.shares(_shares(dict(said.most_common(OPS_SHOWN))), {}, "% of these ops"),
        ),
    }
    return Heard(_sentences(traffic, theirs, said, results.read_json(directory / "capture.json")), drawn)


def _names(directory: Path) -> dict[str, str]:
    """Addresses and names of the workers, as the workload saw them."""
    workers = (
        results.read_json(directory / "capture.json")
        .get("timings", {})
        .get("cluster", {})
        .get("addresses", {})
    )
    return {address.removeprefix("tcp://").rpartition(":")[0]: name for name, address in workers.items()}


def _by_kind(pairs: list[dict[str, Any]], amount: str) -> dict[str, float]:
    """Amounts of pairs of nodes, summed by kind of pair; the client's are left out, as the study did."""
    sums = dict.fromkeys(KINDS, 0.0)
    for pair in pairs:
        ends = [pair[end].partition("-")[0] for end in ("source", "destination")]
        kind = (
            KINDS[0]
            if ends == ["worker", "worker"]
            else f"{ends[0]}s to {ends[1]}"
            if ends[0] == "worker"
            else ""
        )
        kind = KINDS[2] if ends == ["scheduler", "worker"] else kind
        if kind in sums:
            sums[kind] += pair[amount]
    return sums


def _shares(amounts: Mapping[str, float]) -> dict[str, float]:
    total = sum(amounts.values()) or 1
    return {name: 100 * amount / total for name, amount in amounts.items()}


def _rates(capture: wire.Capture) -> dict[str, dict[int, float]]:
    """Mbit/s that each node sent, by second since the capture's first."""
    rows = wire.rows(capture.table("series"))
    begin = min((row["second"] for row in rows), default=0)
    rates: dict[str, dict[int, float]] = {}
    for row in rows:
        node = rates.setdefault(row["source"], {})
        second = row["second"] - begin
        node[second] = node.get(second, 0.0) + 8e-6 * row["ip_bytes"]
    return rates


def _sentences(
    traffic: Mapping[str, float], theirs: Mapping[str, float], said: Counter[str], report: Mapping[str, Any]
) -> list[str]:
    among, study_among = (_shares(amounts)[KINDS[0]] for amounts in (traffic, theirs))
    sentences = [
        f"Workers sent each other {number(sum(traffic.values()) * among / 1e8)} MB, {number(among)} % of the"
        f" cluster's bytes (the study: {number(study_among)} %)."
    ]
    if said:
        op, count = said.most_common(1)[0]
        sentences.append(
            f"Of the scheduler's {said.total():,} ops {number(100 * count / said.total())} % are {op}."
        )
    dropped = [report.get(key) for key in ("dropped_kernel", "dropped_interface")]
    if all(count is not None for count in dropped) and dropped:
        lost = sum(int(count or 0) for count in dropped)
        sentences.append(f"The capture lost {lost:,} of {lost + report.get('frames', 0):,} frames.")
    return sentences

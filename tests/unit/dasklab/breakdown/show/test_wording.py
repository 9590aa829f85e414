"""The sentences and tables of a time breakdown, and clocks against a capture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from dasklab.breakdown.answers.graphs import GRAPH_STAGES, GraphTimes
from dasklab.breakdown.answers.path.replay import Replay
from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.causes import (
    CAUSES,
    COMPUTE,
    COMPUTING,
    LAG,
    LINK,
    NOT_DIVIDED,
    UNDIVIDED,
    USER_CODE,
    WORKER_LAG,
    Bottleneck,
)
from dasklab.breakdown.prepare.common_clock import Delay, clocks_by_packets
from dasklab.breakdown.show import wording

from tests.unit.dasklab.breakdown.summaries import NEW, OLD


@pytest.mark.parametrize(
    ("uncertainty_s", "words"),
    [
        ({}, "On the critical path: 4.00 s computing (worker-1), 3.70 s the wire (worker-3)."),
        (
            {COMPUTING: 0.2, LINK: 0.1},
            "On the critical path: 4.00 s computing (worker-1) and 3.70 s the wire (worker-3)"
            " (too close to tell which is more).",
        ),
        ({COMPUTING: 0.1, LINK: 0.1}, "4.00 s computing (worker-1), 3.70 s the wire"),
    ],
)
def test_first_bottleneck_is_named_alone_only_if_it_is_certainly_the_largest(
    uncertainty_s: dict[Bottleneck, float], words: str
) -> None:
    summary = replace(NEW, uncertainty_s=uncertainty_s)
    assert words in wording.paragraph(summary)
    assert len(summary.first()) == 1 + ("too close" in words)


@pytest.mark.parametrize(
    ("activity", "words"),
    [
        ("spill", "3.70 s worker lag from spilling to disk (worker-1)."),
        ("import", "3.70 s worker lag from importing (worker-1)."),
        ("", "3.70 s worker lag (worker-1)."),
    ],
)
def test_worker_lag_is_named_by_what_blocked_the_loops(activity: str, words: str) -> None:
    cells = {(COMPUTING, "worker-1"): 4.0, (WORKER_LAG, "worker-1"): 3.7}
    text = wording.paragraph(replace(NEW, bottlenecks=cells, lag_activity=activity))
    assert f"4.00 s computing (worker-1), {words}" in text


def test_network_that_costs_nothing_is_one_clause() -> None:
    text = wording.paragraph(replace(NEW, replayed=Replay(7.7, 7.65)))
    assert text.endswith(" The network cost less than 1 % of it.")
    unknown = wording.paragraph(replace(NEW, replayed=Replay(7.7, 7.65, has_client=False)))
    assert unknown.endswith("(the client's link aside, which was not recorded).")


def test_time_that_could_not_be_divided_is_named_with_where_it_lies() -> None:
    path = {(COMPUTE, "worker-1"): 4.0, (UNDIVIDED, ""): 3.7}
    lowered = replace(NEW, path=path, bottlenecks={(COMPUTING, "worker-1"): 4.0, (NOT_DIVIDED, ""): 3.7})
    in_one_piece = wording.paragraph(replace(lowered, repeats=1, undivided=(0.2, 3.9)))
    assert "3.70 s that could not be divided further (between 0.2 s and 3.9 s)" in in_one_piece
    in_pieces = wording.paragraph(replace(lowered, undivided=(0.2, 1.9)))
    assert "further (at most 1.7 s in one piece, between 0.2 s and 1.9 s of a repeat)" in in_pieces


def test_small_shares_of_thread_time_are_left_out() -> None:
    breakdown = {(COMPUTE, "worker-0"): 0.98, (LAG, "worker-0"): 0.02}
    assert "Thread time: 98 % computing. " in wording.paragraph(
        replace(NEW, makespan_s=1.0, breakdown=breakdown)
    )


def test_a_table_ends_with_the_makespan() -> None:
    *_, last = wording.rows(NEW)
    assert last[:4] == ("together", "7.70", "100.0 %", "7.70")


def test_the_largest_causes_come_first_and_the_smallest_share_a_row() -> None:
    seconds = {cause: 0.1 + number for number, cause in enumerate(CAUSES[:12])}
    summary = replace(NEW, breakdown={(cause, "worker-0"): s for cause, s in seconds.items()}, path={})
    head, *_, others, together = wording.rows(summary, 10)
    assert (head[0], head[1]) == (CAUSES[11].title, "11.10")
    assert others[:2] == ("4 other causes", "6.40")
    assert len(list(wording.rows(summary, 10))) == 10 and together[1] == "67.20"
    assert len(list(wording.rows(summary))) == 13


def test_a_breakdown_in_words() -> None:
    text = wording.paragraph(NEW)
    assert text.startswith(
        "It took 7.70 s on 3 threads (mean of 5 repeats). Thread time: 44 % waiting for data: on the wire,"
    )
    assert "On the critical path: 4.00 s computing (worker-1), 3.70 s the wire (worker-3)" in text
    assert "With a network that takes no time" not in text
    replayed = wording.paragraph(replace(NEW, replayed=Replay(7.3, 4.2)))
    assert replayed.endswith(
        "With a network that takes no time: 4.43 s, at most 3.27 s less. (Replay on the same workers: 4.20 s;"
        " with the network as it was 7.30 s, -5.2 % from the measured time.)"
    )


def test_short_repeats_have_three_digits() -> None:
    short = replace(
        OLD, makespan_s=0.0412, replayed=Replay(0.0412, 0.0402), bottlenecks={(COMPUTING, "worker-1"): 0.009}
    )
    text = wording.paragraph(short)
    assert text.startswith("It took 0.0412 s") and "0.0090 s computing (worker-1)" in text
    assert "0.0402 s, at most 0.0010 s less" in text


@pytest.mark.parametrize("delay_s", [0.0, 0.02])
def test_clocks_against_a_capture(delay_s: float) -> None:
    """The scheduler is 0.5 s ahead of the capture, the worker 2 s behind; keys come again in each repeat."""
    chance = np.random.default_rng(3)
    sent = np.sort(chance.uniform(100, 130, 400))
    ways = [0.0003 + chance.exponential(0.001, 400) for _ in range(4)]
    packet = sent + ways[0]
    arrived = packet + ways[1] + delay_s
    start, reported = arrived + 0.01, arrived + 0.05
    finished = reported + ways[2]
    handled = finished + ways[3]
    keys = [f"x-{number % 40}" for number in range(400)]
    frame = pd.DataFrame(
        {"key": keys, "worker": "worker-1", "sent_s": sent + 0.5, "handled_s": handled + 0.5,
         "arrived_s": arrived - 2, "start_s": start - 2, "reported_s": reported - 2}
    )  # fmt: skip
    decoded = [
        {"key": k, "start_s": s - 2, "sent_ns": int(p * 1e9), "finished_ns": int(f * 1e9)}
        for k, s, p, f in zip(keys, start, packet, finished, strict=True)
    ]
    delays = {("scheduler", "worker-1"): Delay(after=delay_s)}
    clocks = clocks_by_packets({"tasks": frame}, decoded, delays)
    for node, true in (("scheduler", 0.5), ("worker-1", -2.0)):
        assert clocks[node].low_s <= true <= clocks[node].high_s
        assert clocks[node].offset_s == pytest.approx(true, abs=1e-4)
    stop_to_wire = finished - clocks["worker-1"].to_reference(reported - 2)
    assert stop_to_wire.min() > -clocks["worker-1"].half_s


def test_clients_own_code_is_told_with_its_lines() -> None:
    opens, other = ("/home/me/load.py", 3, "files = [open(name) for name in names]"), ("load.py", 9, "x")
    lines = {(USER_CODE, opens): 6.0, (USER_CODE, other): 0.1}
    cells = {(USER_CODE, "client"): 6.2}
    summary = Summary(7.0, 2, 1, bottlenecks=cells, client_lines=lines)
    sentence = "6.20 s the client's own code (6.00 s at load.py:3 files = [open(name) for name in names])."
    assert sentence in wording.paragraph(summary)


@pytest.mark.parametrize(
    ("elsewhere_s", "words"),
    [(0.1, "4.00 s computing (worker-1)"), (1.5, "4.00 s computing (worker-1 2.50 s, worker-2 1.50 s)")],
)
def test_place_is_named_alone_only_if_nearly_all_seconds_are_there(elsewhere_s: float, words: str) -> None:
    cells = {(COMPUTING, "worker-1"): 4.0 - elsewhere_s, (COMPUTING, "worker-2"): elsewhere_s}
    assert f"On the critical path: {words}." in wording.paragraph(replace(OLD, bottlenecks=cells))


def test_seconds_of_a_table_have_the_digits_of_its_sentence() -> None:
    assert [wording.decimals(seconds) for seconds in (0.062, 0.62, 4.316, 67.2)] == [4, 3, 2, 2]


def test_stages_have_three_digits() -> None:
    graphs = GraphTimes(tasks=6, nbytes=1e3, seconds={stage.name: 0.0654848 for stage in GRAPH_STAGES})
    rows = list(wording.graph_rows(graphs))
    assert {row[1:3] for row in rows} == {("65.5", "10,900")}

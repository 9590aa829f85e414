"""The panels of a timeline show every moment once; short intervals are drawn together without a gap."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.causes import CAUSES, PARTS, Kind
from dasklab.report.drawings.timeline import drawing
from dasklab.report.drawings.timeline.links_panel import TIME_AXIS_STEPS
from dasklab.report.drawings.timeline.panels import panels
from dasklab.report.drawings.timeline.plain import short_name
from dasklab.report.drawings.timeline.rectangles import SEVERAL, Panel, Rectangles, Row, at_most, merge
from dasklab.report.drawings.timeline.threads_panel import HEIGHTS

from tests.unit.dasklab.breakdown.timelines import by_hand, random_repeat


def panel_of(number: int, rows: int = 4, length_s: float = 10.0) -> Panel:
    """Return a panel whose rows are covered by intervals of random lengths, each with its own detail."""
    chance = np.random.default_rng(number)
    per_row = number // rows
    ends = [np.sort(np.append(chance.uniform(0, length_s, per_row - 1), (0, length_s))) for _ in range(rows)]
    codes, ones = np.arange(number), np.ones(number, np.int64)
    left, right = (np.concatenate([end[cut] for end in ends]) for cut in (slice(-1), slice(1, None)))
    row = np.repeat(np.arange(rows), per_row)
    some = Rectangles(left, right, row, 0.0 * left, left / left.max(), 0 * codes, codes % 3, codes, ones)
    return Panel("p", [Row(str(n), str(n)) for n in range(rows)], some, "abc", list(map(str, codes)))


def test_few_rectangles_stay_as_they_are() -> None:
    panel = panel_of(400)
    same = at_most(panel, 400, 10.0)
    assert (same.details, same.merged_s) == (panel.details, 0)
    assert same.rectangles.left.tolist() == panel.rectangles.left.tolist()


@pytest.mark.parametrize("number", [4_000, 200_000])
def test_many_rectangles_are_merged_below_the_limit_and_cover_the_same_time(number: int) -> None:
    panel = panel_of(number)
    merged = at_most(panel, 1_000, 10.0)
    some = merged.rectangles
    assert 400 < len(some) <= 1_000 and merged.intervals == number and merged.merged_s > 0
    for row in range(4):
        mine = some.select(some.row == row)
        order = np.argsort(mine.left)
        assert mine.left[order][0] == 0 and mine.right[order][-1] == 10
        assert (mine.left[order][1:] <= mine.right[order][:-1]).all()  # no gap
    alone = some.count == 1
    assert (some.detail[~alone] == SEVERAL).all()
    named = {merged.details[code] for code in some.detail[some.detail != SEVERAL].tolist()}
    assert named == set(merged.details)


def test_long_ones_stay_alone_and_the_longest_names_the_others() -> None:
    zeros = np.zeros(4, np.int64)
    left, right = np.array([0.0, 0.1, 0.4, 1.0]), np.array([0.1, 0.4, 0.5, 9.0])
    some = Rectangles(
        left, right, zeros, 0 * left, 1 + 0 * left, zeros, np.arange(4), np.arange(4), zeros + 1
    )
    merged = merge(some, width=1.0)
    assert merged.left.tolist() == [1.0, 0.0] and merged.right.tolist() == [9.0, 0.5]
    assert merged.count.tolist() == [1, 3] and merged.what.tolist() == [3, 1]


@pytest.mark.parametrize("seed", range(10))
def test_threads_show_every_moment_of_the_time_breakdown(seed: int) -> None:
    run = random_repeat(seed, sense=True)
    threads = panels(run)[0]
    some, intervals = threads.rectangles, break_down(run)
    below_path = some.row > 0
    assert (some.right - some.left)[below_path].sum() == pytest.approx(intervals.seconds.sum())
    assert (some.right - some.left)[~below_path].sum() == pytest.approx(run.makespan)
    assert len(threads.rows) == 1 + len(run.thread_rows[1])
    assert some.colour.min() >= 0 and some.colour.max() < len(PARTS)


def test_height_shows_whether_a_thread_works_waits_or_is_idle() -> None:
    threads = panels(by_hand())[0]
    kinds = {cause.title: cause.kind for cause in CAUSES}
    some = threads.rectangles
    for what, low, high in zip(some.what.tolist(), some.low.tolist(), some.high.tolist(), strict=True):
        title = re.sub(r" \(\S+ < \S+\)$", "", threads.descriptions[what])
        assert (low, high) == HEIGHTS[kinds[title]]
    sizes = [high - low for low, high in (HEIGHTS[kind] for kind in (Kind.WORK, Kind.WAITING, Kind.IDLE))]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 3


def test_transfers_messages_and_links_of_a_run() -> None:
    _, transfers, messages, links = panels(by_hand(busy={"scheduler": [(3.2, 3.4)]}))
    assert [row.label for row in transfers.rows] == ["worker-1 \u2192 worker-2"]
    assert transfers.details == ["8.0e-06 MB, 2.3e-05 Mbit/s: a"]
    labels = [row.label for row in messages.rows]
    assert labels == [
        "scheduler \u2192 worker-1",
        "scheduler \u2192 worker-2",
        "worker-1 \u2192 scheduler",
        "worker-2 \u2192 scheduler",
        "event loop of scheduler",
    ]
    assert [row.short for row in messages.rows][-2:] == ["w2\u2192s", "s loop"]
    assert [row.label for row in links.rows] == ["out of worker-1", "into worker-2"]


def test_messages_of_captured_runs_are_those_of_the_packets() -> None:
    class Captured:
        def rows(self, name: str) -> list[dict[str, object]]:
            assert name == "messages"
            common = {"source": "scheduler", "destination": "worker-1", "kind": "reply", "bytes": 1234}
            times = [(1.0, 1.5, "compute-task"), (2.0, 2.1, None), (11.0, 12.0, "after the run")]
            return [
                common | {"time_ns": int(1e9 * begin), "end_ns": int(1e9 * end), "op": op}
                for begin, end, op in times
            ]

    messages = panels(by_hand(), Captured())[2]
    assert messages.descriptions == ["compute-task", "reply", "event loop busy"]
    assert messages.details == ["1,234 bytes", "1,234 bytes"]
    some = messages.rectangles
    assert (some.left.tolist(), some.right.tolist()) == ([1.0, 2.0], [1.5, 2.1])


def test_links_show_the_bytes_that_moved() -> None:
    run = random_repeat(3, sense=True)
    links = panels(run)[-1]
    highest = float(re.search(r"up to ([\d.e-]+) Mbit/s", links.title)[1])
    some = links.rectangles
    rate = (some.high - some.low) / 0.94 * highest
    moved = (rate * 1e6 / 8 * (some.right - some.left)).sum()
    within = (run.fetches.start >= run.start) & (run.fetches.stop <= run.stop)
    assert within.any() and len(some) <= 6 * TIME_AXIS_STEPS
    assert moved == pytest.approx(2 * run.moved[within].sum(), rel=0.1)  # each fetch has two ends


def test_short_names_fit_a_narrow_screen() -> None:
    names = ("worker-1", "scheduler", "worker-3-2", "tcp://10.0.0.12:40001")
    assert [short_name(name) for name in names] == ["w1", "s", "w3-2", "12:40001"]


def test_document_is_bounded_and_may_stand_in_a_page() -> None:
    run = by_hand()
    key = "</script><script>alert(1)"
    run = replace(run, keys=[key, *run.keys[1:]])
    text = drawing.document(drawing.reduced(panels(run), run.makespan), run.makespan)
    assert "</" not in text and key in json.dumps(json.loads(text), ensure_ascii=False)
    crowd = [panel_of(200_000, rows=40), panel_of(80_000), panel_of(80_000)]
    assert sum(len(panel.rectangles) for panel in drawing.reduced(crowd, 10.0)) <= drawing.MOST_STORED

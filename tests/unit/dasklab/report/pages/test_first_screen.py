"""The first screen answers: what, how much, how certain, where, when, and what is invalid."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dasklab import report
from dasklab.breakdown.model.causes import PARTS
from dasklab.breakdown.show import explain
from dasklab.model.experiments import experiment
from dasklab.model.files import Configured
from dasklab.model.forms.number_format import UNKNOWN
from dasklab.model.settings.nic import NicSettings
from dasklab.report.drawings.time_parts import time_table
from dasklab.report.pages.first_screen import bars, certainty, invalid_sentence
from dasklab.report.words.levels import cell_label, level_words
from dasklab.report.words.notes import InvalidTrials, rate_caps
from dasklab.report.words.provenance import machines_of, workloads
from dasklab.report.words.sentences import sentence
from dasklab.results import load
from dasklab.results.run import Run
from dasklab.results.statistics.answers import answer
from dasklab.results.statistics.interval import Interval, format_interval
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json
from tests.unit.dasklab.stored_run import previous_run

Measure = Callable[..., driver.ActiveRun]
MOST = {"none": 0.44, "scheduler": 0.44, "worker": 2.5, "all": 5.3}


def slow_links(tmp_path: Path, **changes: object) -> driver.ActiveRun:
    name, content = experiment.load("slow_links", quick=True)
    run = driver.start(tmp_path, name, content.model_copy(update=changes), SETUP, quick=True)
    driver.execute(run, FakeLab(lambda trial: MOST[trial["factors"]["slow"]]), lambda trial, state: None)
    return run


@pytest.mark.usefixtures("undrawn")
def test_first_screen_of_slow_links_answers_with_absolute_units(tmp_path: Path) -> None:
    text = report.write([slow_links(tmp_path).opened_again()], tmp_path / "report").read_text()
    first, _, _ = text.partition("Every setting, every metric")
    assert "<h1>Which slow link costs time, the scheduler&#39;s or a worker&#39;s" in first
    assert '<p class="answer">50 Mbit/s on every link: the time to compute is 5.' in first
    for expected in (
        "s instead of 0.44",
        "50 Mbit/s on worker-1&#39;s link: 2.",
        "no difference shown: 50 Mbit/s on the scheduler&#39;s link",
        "<strong>Certain.</strong> Chance shows a difference this large in fewer than one experiment of 20.",
        "15 trials in 3 blocks",
        "All 15 trials are valid.",
        "QEMU emulates the CPU (tcg)",
        "dask 2026.8.0",
        "array_study: size 2000, chunk 500",
    ):
        assert expected in first, expected


def test_bars_show_medians_intervals_and_the_baseline(tmp_path: Path) -> None:
    run = slow_links(tmp_path)
    result = answer(load(run.stored.folder), "compute_s", ["slow"])
    picture = bars(result, {})
    assert picture is not None and result is not None
    assert [bar.baseline for bar in picture.bars] == [True, False, False, False]
    longest = max(bar.high_pct for bar in picture.bars if bar.high_pct is not None)
    assert longest == pytest.approx(100)
    for bar, cell in zip(picture.bars, result.cells, strict=True):
        assert bar.low_pct is not None and bar.high_pct is not None
        assert bar.low_pct <= bar.width_pct <= bar.high_pct
        assert bar.value == format_interval(cell.median, "s")  # nobody reads an interval off a bar
        assert bar.width_pct / bar.baseline_pct == pytest.approx(
            cell.median.value / result.cells[0].median.value
        )
    assert bars(None, {}) is None


def test_how_the_node_caps_rates_is_a_fact_and_no_warning() -> None:
    def trial(rate_mbit: float) -> Any:
        nics = {"worker-1": NicSettings(rate_mbit=rate_mbit)}
        configured = Configured(rate_method="shape-ifb")
        return SimpleNamespace(requested=SimpleNamespace(nics=nics), configured=configured)

    expected = ["the node queues frames above the rate of a capped guest (a shaper)"]
    assert list(rate_caps([trial(0), trial(50), trial(50)])) == expected
    assert list(rate_caps([trial(0)])) == []


@pytest.mark.parametrize(("blocks", "word"), [(1, "Not certain"), (3, "Certain")])
def test_one_block_is_not_certain(tmp_path: Path, blocks: int, word: str) -> None:
    result = answer(load(slow_links(tmp_path, blocks=blocks).stored.folder), "compute_s", ["slow"])
    assert certainty(result, 5 * blocks, None)[0] == word
    assert certainty(result, 5 * blocks, "runs/a")[0] == "Predicted"
    assert certainty(None, 0, None)[0] == "No answer"


def test_noise_is_no_difference(measured: Measure) -> None:
    result = answer(load(measured(FakeLab()).stored.folder), "compute_s", ["delay_ms"])
    word, why = certainty(result, 8, None)
    assert word == "Only differences above 2.89 % could have been seen" and why.startswith("8 trials in ")


def test_a_baseline_that_is_a_choice_is_named(tmp_path: Path) -> None:
    result = answer(load(slow_links(tmp_path).stored.folder), "compute_s", ["slow"])
    assert result is not None
    words = {"slow": {"all": "50 Mbit/s on every link"}}
    assert cell_label(result, result.cells[0], words) == "baseline"
    assert cell_label(result, result.cells[0], {}) == "baseline (slow none)"


def test_every_workload_of_a_factor_is_named() -> None:
    levels = {
        "arrays": {"workload": {"name": "array_study", "params": {"size": 10}}},
        "joins": {"workload": {"name": "merge"}},
    }
    assert workloads({"factors": {"work": {"levels": levels}}}) == "array_study: size 10; merge"
    assert workloads({"workload": {"name": "groupby"}, "factors": {}}) == "groupby"


NICS = {
    "VirtIO": {"guests": {"cluster": {"kind": "vm"}}, "nics": {"cluster": {"model": "virtio"}}},
    "slow": {
        "guests": {"cluster": {"kind": "container"}},
        "nics": {"cluster": {"model": "veth", "rate_mbit": 9}},
    },
}


def test_models_of_every_nic_need_neither_a_place_nor_a_kind_of_guest() -> None:
    assert level_words({"nic": {"levels": NICS}})["nic"] == {"VirtIO": "VirtIO", "slow": "veth at 9 Mbit/s"}
    other = NICS | {"one": {"nics": {"worker-1": {"model": "e1000"}}}}
    assert level_words({"nic": {"levels": other}})["nic"]["VirtIO"] == "VirtIO on every link"
    guests = {"levels": {"new": {"guests": {"cluster": {"kind": "container"}}}}}
    assert level_words({"guests": guests})["guests"] == {}


def test_kinds_of_guests_that_only_some_cells_have_are_named(tmp_path: Path) -> None:
    run = slow_links(tmp_path).opened_again().document
    assert machines_of(run, None) == "5 virtual machines"
    mixed = run.model_copy(update={"experiment": {"factors": {"nic": {"levels": NICS}}}})
    assert machines_of(mixed, None) == "5 virtual machines; containers in some cells"


def test_a_sentence_says_how_many_more_levels_differ(tmp_path: Path) -> None:
    result = answer(load(slow_links(tmp_path).stored.folder), "compute_s", ["slow"])
    assert result is not None
    slow = next(cell for cell in result.cells if cell.is_shown)
    many = replace(result, cells=[result.cells[0], *[slow] * 6])
    assert sentence(many, {}).endswith("; 5 others differ, too.")
    assert "others" not in sentence(replace(result, cells=[result.cells[0], *[slow] * 4]), {})


def test_invalid_trials_are_described_in_words() -> None:
    groups = [InvalidTrials(["1-01-a", "2-03-a"], "invalid", ("worker-1 passed 45 of 50 Mbit/s",))]
    assert invalid_sentence(groups, 8, []) == (
        "2 of 8 trials left the statistics: 2 x invalid: worker-1 passed 45 of 50 Mbit/s."
    )
    assert invalid_sentence([], 1, []) == "The only trial is valid."
    assert invalid_sentence([], 3, ["x"]) == "1 trial could not be read because of damaged files."


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nics": {"cluster": {"rate_mbit": 50}}}, "50 Mbit/s on every link"),
        ({"nics": {"cluster": {"rate_mbit": 0}}}, "no cap on every link"),
        (
            {"nics": {"worker-1": {"model": "e1000", "rate_mbit": 1000}}},
            "E1000 at 1 Gbit/s on worker-1's link",
        ),
        (
            {"links": {"scheduler": {"delay_ms": 100, "direction": "egress"}}},
            "100 ms of delay, egress only on the scheduler's link",
        ),
        ({"links": {"worker-1": {"loss_pct": 0}}}, "no impairment on worker-1's link"),
        (
            {
                "nics": {
                    "client": {"rate_mbit": 50},
                    "worker-1": {"rate_mbit": 50},
                    "worker-2": {"rate_mbit": 5},
                }
            },
            "50 Mbit/s on the links of client and worker-1 and 5 Mbit/s on worker-2's link",
        ),
        ({"faults": [{"host": "worker-2", "does": "kill", "at_s": [1, 2]}]}, None),
        ({}, None),
    ],
)
def test_level_is_described_by_its_settings(settings: Json, words: str | None) -> None:
    assert level_words({"f": {"levels": {"x": settings}}})["f"].get("x") == words


@pytest.mark.parametrize("name", experiment.names())
def test_levels_of_every_experiment_have_different_words(name: str) -> None:
    for quick in (False, True):
        _, content = experiment.load(name, quick=quick)
        raw = content.model_dump(mode="json")["factors"]
        for factor, words in level_words(raw).items():
            assert len(set(words.values())) == len(words), (factor, words)


@pytest.mark.parametrize(
    ("interval", "unit", "text"),
    [
        (Interval(6540, 6010, 7000), "Mbit/s", "6.54 (6.01 to 7.00) Gbit/s"),
        (Interval(0.186), "s", "0.186 s"),
        (Interval(1200), "ms", "1.20 s"),
        (Interval(2270), "", "2,270"),
    ],
)
def test_large_numbers_have_the_next_larger_unit(interval: Interval, unit: str, text: str) -> None:
    assert format_interval(interval, unit) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.00324, -0.0652, 0.0813), "0.0032 (-0.0652 to 0.0813)"),
        (Interval(0.981, 0.952, 1.02), "0.98 (0.95 to 1.02)"),
        (Interval(-0.0000412, -0.0652, 0.0813), "0.0000 (-0.0652 to 0.0813)"),
        (Interval(0.0000412, 0.0000312, 0.0000512), "4.1e-05 (3.1e-05 to 5.1e-05)"),
        (Interval(1.234, 0.00123, math.inf), f"1.23 (0.00 to {UNKNOWN})"),
    ],
)
def test_numbers_beside_a_larger_one_have_as_many_decimals(interval: Interval, text: str) -> None:
    assert format_interval(interval) == text


def test_parts_and_causes_add_up_to_the_run_time(tmp_path: Path) -> None:
    summaries = explain.cells(Run(previous_run(tmp_path)))
    table = time_table(summaries)
    assert table is not None
    [row] = table.rows
    assert sum(segment.seconds for segment in row.segments) == pytest.approx(row.makespan_s, rel=1e-3)
    assert sum(segment.width_pct for segment in row.segments) == pytest.approx(100, rel=1e-3)
    assert sum(float(cause.seconds[0]) for cause in table.causes) == pytest.approx(row.makespan_s, abs=0.01)
    assert {part.name for part in table.parts} <= {part.name for part in PARTS}
    assert time_table({}) is None

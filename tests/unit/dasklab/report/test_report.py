"""Sentences and verdicts follow from the numbers; the page is self-contained."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import daskwire
import numpy as np
import pytest
from dasklab import report
from dasklab.model.experiments import experiment
from dasklab.model.forms.number_format import format_number
from dasklab.report.drawings import captures, figures
from dasklab.report.drawings.captures import counting
from dasklab.report.drawings.captures.content import Content
from dasklab.report.pages import page, tables
from dasklab.report.words import levels, sentences
from dasklab.results import cached, load, recording
from dasklab.results.recording import Recording
from dasklab.results.run import Run, Trial
from dasklab.results.statistics import identity
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.answers import answer
from dasklab.results.statistics.interaction import interactions
from dasklab.results.statistics.interval import Interval
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json, capture_report

STUDY = json.loads(page.STUDY.read_text())
Measure = Callable[..., driver.ActiveRun]


def sloped(trial: Json) -> float:
    return 4.0 + 0.02 * float(trial["factors"]["delay_ms"])


def answers_of(run: driver.ActiveRun) -> sentences.Answers:
    result = answer(load(run.stored.folder), "compute_s", ["delay_ms"])
    assert result is not None
    return {run.name: {"compute_s": result}}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.158, "4.16"),
        (0.3936, "0.394"),
        (15.04, "15.0"),
        (9900, "9,900"),
        (7e-7, "7.0e-07"),
        (0, "0"),
        (-2.5, "-2.50"),
        (0.9999, "1.00"),
    ],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_sentence_has_the_ratio_and_the_slope(measured: Measure) -> None:
    run = measured(FakeLab(sloped))
    words = levels.level_words(run.opened_again().document.experiment["factors"])
    text = sentences.sentence(answers_of(run)["delay_scheduler"]["compute_s"], words)
    pattern = (
        r"200 ms of delay on the scheduler's link: the time to compute is (8\.\d\d|7\.9\d) s instead of"
        r" (4\.0\d|3\.9\d) s, x (2\.0\d|1\.9\d) \(.*\); each ms of delay adds 0\.0\d+ \(.*\) s"
    )
    assert re.match(pattern, text), text


def test_no_difference_is_an_answer(measured: Measure) -> None:
    text = sentences.sentence(answers_of(measured(FakeLab()))["delay_scheduler"]["compute_s"], {})
    assert text.startswith("No difference shown: no level of delay_ms changes the time to compute by more")
    assert sentences.sentence(None, {}) == "No answer: there is no valid baseline."


@pytest.mark.parametrize(
    ("seconds", "state"),
    [
        (sloped, "holds"),
        (lambda trial: 4.0, "not shown"),
        (lambda trial: 8.0 - sloped(trial) / 2, "does not hold"),
    ],
)
def test_finding_is_judged(measured: Measure, seconds: Callable[[Json], float], state: str) -> None:
    finding = next(f for f in STUDY["findings"] if f["id"] == "delay-scheduler")
    assert sentences.verdict(finding, answers_of(measured(FakeLab(seconds)))).state == state


def test_finding_without_a_run_is_not_measured() -> None:
    assert sentences.verdict(STUDY["findings"][0], {}).state == "not measured"


def test_quotient_is_as_wide_as_both_intervals_allow() -> None:
    assert sentences.quotient(Interval(4, 3, 6), Interval(2, 1, 3)) == Interval(2, 1, 6)
    ours = sentences.quotient(Interval(4, 3, 6), Interval(1.0))
    assert (ours.low, ours.high) == (3, 6)


def test_ratios_of_the_study_follow_from_its_figures() -> None:
    figures = STUDY["figures"]
    by_experiment = {
        "delay_worker": "fig15",
        "loss_worker": "fig17",
        "slow_links": "links",
        "workers": "fig12",
    }
    by_experiment |= {"delay_scheduler": "fig14", "loss_scheduler": "fig16", "nic_matrix": "fig13"}
    for finding in STUDY["findings"]:
        values = []
        for side in ("slower", "than"):
            points = figures[by_experiment[finding[side]["experiment"]]]["points"]
            level = finding[side]["cell"].partition("=")[2]
            values.append(next(point["value"] for point in points if str(point["level"]) == level))
        assert finding["study_ratio"] == pytest.approx(values[0] / values[1], rel=1e-3)


def test_every_number_of_the_study_has_a_source() -> None:
    assert all(point["provenance"] for figure in STUDY["figures"].values() for point in figure["points"])


class Links(HTMLParser):
    """Collect everything that the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("img", "script", "link"):
            self.loaded += [value or "" for key, value in attrs if key in ("src", "href")]


def test_page_is_self_contained(measured: Measure, tmp_path: Path) -> None:
    def spoil(trial: Json, files: Json) -> int:
        return 2 if trial["cell"] == "delay_ms=50" and trial["block"] == 1 else 0

    run = measured(FakeLab(sloped, spoil))
    page = report.write([run.opened_again()], tmp_path / "report").read_text()
    study = (tmp_path / "report" / "study_2019.html").read_text()
    for text in (page, study):  # the round trip's picture, and the one with the study's times
        links = Links()
        links.feed(text)
        assert len(links.loaded) == 1 and links.loaded[0].startswith("data:image/svg+xml")
    assert 'href="study_2019.html"' in page and 'href="report.html"' in study
    assert "1 of 8 trials left the statistics" in page and "ended with status 2" in page
    assert f"dasklab run {run.stored} --only delay_ms=50" in page, "not the experiment that has this name"
    names = {path.name for path in (tmp_path / "report").iterdir()}
    stems = ("delay_scheduler-compute_s", "delay_scheduler-rtt_ms")
    pages = {"report.html", "report.md", "study_2019.html", "trials"}
    assert names == pages | {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")}


@pytest.mark.usefixtures("undrawn")
def test_trials_with_the_same_reasons_are_listed_together(measured: Measure, tmp_path: Path) -> None:
    def spoil(trial: Json, files: Json) -> int:
        return {"delay_ms=50": 2, "delay_ms=200": 4}.get(trial["cell"], 0)

    run = measured(FakeLab(sloped, spoil))
    text = report.write([run.opened_again()], tmp_path / "report").with_name("report.md").read_text()
    lines = {code: re.findall(rf"^- (.*) failed: ended with status {code}$", text, re.M) for code in (2, 4)}
    order = [trial.trial for trial in run.trials if trial.cell == "delay_ms=50"]
    assert lines[2] == [", ".join(f"`{name}`" for name in order)]
    assert len(lines[4]) == 1
    page = (tmp_path / "report" / "report.html").read_text()
    assert "4 of 8 trials left the statistics" in page
    assert f"<li><code>{order[0]}</code>, <code>{order[1]}</code> <strong>failed</strong>:" in page


@pytest.mark.usefixtures("undrawn")
def test_trial_that_is_being_replaced_is_left_out(
    measured: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dasklab run RUN --again` may remove a trial's folder while the report reads it."""
    run = measured(FakeLab()).stored.folder
    trials = [trial.folder for trial in Run(run).trials]
    replaced, simulated_from = trials[1], identity.simulated_from

    def replace(run: Run) -> str | None:
        if (replaced / "result.json").exists():
            shutil.rmtree(replaced)
            replaced.mkdir()
        return simulated_from(run)

    monkeypatch.setattr(identity, "simulated_from", replace)
    page.write([Run(run)], tmp_path / "report")
    assert len(Run(run).trials) == len(trials) - 1
    assert (tmp_path / "report" / "report.html").exists()


def test_figure_shows_the_study_as_ratios(measured: Measure) -> None:
    frame = load(measured(FakeLab(sloped)).stored.folder)
    result = answer(frame, "compute_s", ["delay_ms"])
    assert result is not None
    axes = figures.draw(result, frame, STUDY["figures"]["fig14"]).axes[0]
    study = next(line for line in axes.lines if str(line.get_label()).startswith("2019"))
    assert study.get_ydata()[0] == 1
    assert study.get_ydata()[-1] == pytest.approx(8.211 / 4.158)
    assert list(np.asarray(study.get_xdata())) == [0, 5, 10, 50, 100, 150, 200]


@pytest.mark.parametrize("rest", [0.0, 0.02])
def test_metric_that_is_almost_zero_at_rest_has_no_ratios(measured: Measure, rest: float) -> None:
    frame = load(measured(FakeLab()).stored.folder)
    first = frame[~frame.warmup].groupby("trial").head(1)
    samples = first[first.block == 1].assign(
        metric="retransmitted_pct", value=lambda f: rest + f.delay_ms.astype(float)
    )
    result = answer(samples, "retransmitted_pct", ["delay_ms"])
    assert result is not None and not result.scaled
    assert sentences.sentence(result, {}) == (
        "200 ms of delay: the TCP segments retransmitted during the repeats was"
        f" {format_number(200 + rest)} % instead of {format_number(rest)} %, without intervals: one block is"
        " too few to distinguish differences from noise."
    )
    axes = figures.draw(result, samples, STUDY["figures"]["fig14"]).axes[0]
    assert axes.get_ylabel() == "TCP segments retransmitted during the repeats, %"
    assert not [line for line in axes.lines if str(line.get_label()).startswith("2019")]


CAPTURE = Path(__file__).parents[3] / "data" / "wire" / "g3-2026.8.0.pcap.gz"


def record(directory: Path, workload: str = "array_study", frames: int = 300) -> Path:
    """Put a capture of a real cluster into a trial's directory."""
    (directory / "capture.pcap").write_bytes(gzip.decompress(CAPTURE.read_bytes()))
    (directory / "capture.json").write_text(json.dumps(capture_report(workload, frames=frames)))
    return directory


def described(directory: Path) -> Content:
    capture = recording.read(directory)
    assert capture is not None
    return captures.describe(capture, STUDY["figures"])


def test_capture_is_described_in_sentences_and_figures(tmp_path: Path) -> None:
    content = described(record(tmp_path))
    # 63,725 + 63,662 of the bytes between workers and scheduler, by `dasklab wire matrix`
    assert content.sentences == [
        "Workers sent each other 0.127 MB, 51.3 % of the cluster's bytes (the study: 99.7 %).",
        "By the study's method 25.0 % of the scheduler's packets are compute-task (the study: 47.9 %)."
        " Of the ops that it sends, counting each op of a batch, 27.7 % are.",
        "The method would count 2 add-keys instead of 19, x 0.105 of the truth.",
        "Its “data” depends on offload: the same bytes between workers are 28 packets as captured,"
        " but 102 if cut for the wire, x 3.64 of those if joined.",
    ]
    stems = {"traffic", "series", "ops", "composition", "counting", "heartbeat", "intervals"}
    assert set(content.figures) == stems
    for _, figure in content.figures.values():
        figure.draw_without_rendering()
    assert recording.read(tmp_path / "nowhere") is None


def test_error_of_the_study_s_method_is_a_factor_by_op(tmp_path: Path) -> None:
    capture = recording.read(record(tmp_path))
    assert capture is not None
    counts = counting.count(capture)
    key = ("scheduler", "compute-task")
    ops = sum(row["op"] == "compute-task" for row in capture.rows("ops"))
    assert counts.true[key] == ops
    assert counts.factor(key, "as captured") == counts.packets["as captured"][key] / ops
    table = counting.describe(capture, STUDY["figures"]["fig20"]).tables[0]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["workers to scheduler: add-keys"][:2] == ["19", "2 (\u00d70.105)"]


def test_idle_cluster_is_described_by_its_heartbeats(tmp_path: Path) -> None:
    content = described(record(tmp_path, "idle"))
    assert set(content.figures) == {"idle", "heartbeat", "intervals"}
    assert content.sentences[0].startswith(
        "In an idle cluster, each worker sends the scheduler a heartbeat every 500 ms"
        " (90 % within 497 to 501 ms): 607 bytes, answered by 77."
    )
    assert content.sentences[1] == (
        "The scheduler requests 500 ms; the study printed 1,022 ms for that field by mistake:"
        " its bytes mean 500 ms."
    )
    fields = {row[0]: row[1:] for row in content.tables[-1].rows}
    assert fields["reply: heartbeat-interval"] == ["0.5", "0.5"]
    assert fields["request: metrics.bandwidth.total"] == ["100000000", "263611757.62409046"]


def test_only_messages_during_the_runs_count(tmp_path: Path) -> None:
    whole = recording.read(record(tmp_path, "idle"))
    assert whole is not None
    middle_s = sum(whole.window_ns) / 2e9
    report = json.loads((tmp_path / "capture.json").read_text())
    run = {"repeat": 0, "warmup": False, "start": middle_s, "stop": middle_s + 60, "duration_s": 60}
    report["timings"]["samples"] = [run | {"answer": 0, "ok": True}]
    (tmp_path / "capture.json").write_text(json.dumps(report))
    part = recording.read(tmp_path)
    assert part is not None and part.repeats == [(middle_s, middle_s + 60)]

    def messages(capture: Recording) -> int:
        return sum(capture.during(row["time_ns"]) for row in capture.rows("messages"))

    assert 0 < messages(part) < messages(whole) == 133


class CapturingLab(FakeLab):
    """A fake lab whose captures are of an idle cluster and lost six frames."""

    def run_trial(self, stored: Trial) -> int:
        status = super().run_trial(stored)
        capture = json.loads((record(stored.folder, "idle") / "capture.json").read_text())
        (stored.folder / "capture.json").write_text(json.dumps(capture | {"left_behind": 6}))
        return status


def captured(tmp_path: Path) -> driver.ActiveRun:
    name, content = experiment.load("idle_capture", quick=True)
    run = driver.start(tmp_path, name, content, SETUP, quick=True)
    driver.execute(run, CapturingLab(), lambda trial, state: None)
    return run


def test_capture_is_decoded_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is decoded when the trial ends. Later the stored tables are read, even if the capture is gone."""
    opened = []

    def counted(*args: object, **options: object) -> daskwire.Capture:
        opened.append(args)
        return open_capture(*args, **options)

    open_capture = daskwire.open_capture
    monkeypatch.setattr(daskwire, "open_capture", counted)
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    run = captured(tmp_path)
    trial = run.stored.folder / "1-01-baseline"
    first = report.write([run.opened_again()], tmp_path / "first").read_text()
    assert len(opened) == 1
    assert not (trial / "decoded").exists()
    [decoded] = cached.folder(cached.COMPUTED).glob("*-1-01-baseline/decoded")
    shutil.rmtree(decoded)
    again = report.write([run.opened_again()], tmp_path / "again").read_text()
    assert len(opened) == 2 and (decoded / "messages.parquet").exists()
    (trial / "capture.pcap").unlink()
    alone = report.write([run.opened_again()], tmp_path / "alone").read_text()
    assert first == again == alone and len(opened) == 2


def test_page_describes_the_capture_and_warns_of_lost_frames(tmp_path: Path) -> None:
    run = captured(tmp_path)
    page = report.write([run.opened_again()], tmp_path / "report").read_text()
    assert "The capture is incomplete: tcpdump left 6 received frames behind when it was stopped." in page
    assert '<p class="answer">In an idle cluster' in page
    assert "A heartbeat, field by field" in page
    assert "| request: op | 'heartbeat_worker' |" in (tmp_path / "report" / "report.md").read_text()
    stems = {path.stem for path in (tmp_path / "report").glob("*.svg")}
    assert stems == {"idle_capture-idle", "idle_capture-heartbeat", "idle_capture-intervals"}


LEVELS = {
    ("delay_ms", 5): "5 ms",
    ("loss_pct", 1): "1 %",
    ("rate_mbit", 0): "no cap",
    ("nic", "E1000"): "E1000",
}


@pytest.mark.parametrize(("level", "name"), LEVELS.items())
def test_level_has_its_unit(level: tuple[str, object], name: str) -> None:
    assert levels.level_name(*level) == name


def test_effects_of_two_factors_are_separated(tmp_path: Path) -> None:
    """Flooding costs x 2, but only where the link is capped."""

    def seconds(trial: Json) -> float:
        capped = 4.0 if trial["factors"]["rate_mbit"] else 2.0
        return capped * (2 if capped == 4 and trial["factors"]["bridge"] == "flooding" else 1)

    name, content = experiment.load("bridge_rate", quick=True)
    run = driver.start(tmp_path, name, content, SETUP, quick=True)
    driver.execute(run, FakeLab(seconds), lambda trial, state: None)
    result = answer(load(run.stored.folder), "compute_s", ["rate_mbit", "bridge"])
    assert result is not None
    pattern = (
        r"flooding against learning: x (1\.0\d|0\.9\d\d) \(.*\) with no cap, "
        r"x (2\.0\d|1\.9\d) \(.*\) with 100 Mbit/s, x (2\.0\d|1\.9\d) \(.*\) with 50 Mbit/s\."
    )
    assert re.fullmatch(pattern, sentences.contrasts(result)[-1]), sentences.contrasts(result)
    [table] = tables.interactions({"compute_s": result})
    assert table.head == ["cell", "added, s", "rate_mbit alone, %", "bridge alone, %", "only combined, %"]
    rows = {name: [float(text.split()[0]) for text in row] for name, *row in table.rows}
    assert sorted(rows) == ["rate_mbit=100,bridge=flooding", "rate_mbit=50,bridge=flooding"]
    for row in rows.values():
        assert row == pytest.approx([6, 100 / 3, 0, 200 / 3], abs=5)


def test_only_shown_differences_of_two_factors_are_divided(tmp_path: Path) -> None:
    name, content = experiment.load("bridge_rate", quick=True)
    run = driver.start(tmp_path, name, content, SETUP, quick=True)
    driver.execute(run, FakeLab(lambda trial: 2.0 + bool(trial["factors"]["rate_mbit"])), lambda *_: None)
    frame = load(run.stored.folder)
    result = answer(frame, "compute_s", ["rate_mbit", "bridge"])
    assert result is not None and len(interactions(result)) == 2
    hidden = [replace(cell, is_shown=False) for cell in result.cells]
    assert interactions(replace(result, cells=hidden)) == []
    alone = answer(frame[frame.bridge == "learning"], "compute_s", ["rate_mbit"])
    assert alone is not None and interactions(alone) == []


def engine_cell(engine: str, rate: int, ratio: float) -> Cell:
    """Return a cell that takes x ``ratio`` compared with the baseline of its engine."""
    interval = Interval(ratio, ratio - 0.1, ratio + 0.1)
    return Cell(
        name=f"engine={engine}, rate_mbit={rate}",
        factors={"engine": engine, "rate_mbit": rate},
        baseline=not rate,
        guests="",
        n=3,
        trials=3,
        median=interval,
        mean=ratio,
        lowest=ratio,
        highest=ratio,
        difference=Interval(ratio - 1),
        ratio=interval,
        least=0.1,
        is_shown=ratio != 1,
    )


def test_no_sentence_compares_the_seconds_of_two_engines() -> None:
    cells = [engine_cell("dask", 0, 1), engine_cell("dask", 100, 2)]
    cells += [engine_cell("spark", 0, 1), engine_cell("spark", 100, 1.25)]
    result = Answer("compute_s", ("engine",), cells, Interval(0, -0.1, 0.1), {})
    text = sentences.sentence(result, {})
    assert "100 Mbit/s" in text and "2.00 (1.90 to 2.10)" in text and "spark" not in text
    contrasts = " ".join(sentences.contrasts(result))
    assert "with spark" in contrasts and "spark against dask" not in contrasts

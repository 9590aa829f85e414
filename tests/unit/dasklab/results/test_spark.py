"""Spark beside Dask: what a trial asks, what is read back, what a slower link costs each."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from dasklab import wheels
from dasklab.model import engines, experiment
from dasklab.model.experiment import Experiment
from dasklab.model.files import Timings
from dasklab.model.trial import Trial
from dasklab.model.workloads import parameters
from dasklab.paths import WORKLOADS
from dasklab.report import sentences
from dasklab.report.section import _slopes as table_of_slopes
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.slopes import rate_slopes
from dasklab.results.storage.samples import samples
from dasklab.results.validity.cluster import differences
from dasklab.running.trials import plan
from minipve.image import debs

from tests.unit.dasklab.conftest import SETUP, Json, answers

BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
DOCUMENT: Json = {
    "title": "",
    "question": "",
    "metrics": {"compute_s": None},
    "workload": {"name": "join"},
    "engine": "spark",
}


def asked(**settings: Any) -> Trial:
    return plan("x", Experiment.model_validate(DOCUMENT | settings), SETUP)[0]


def said(trial: Trial, **told: Any) -> list[str]:
    found = answers(json.loads(trial.to_json()), 1.0, random.Random(1))["timings.json"]
    return list(differences(trial, Timings.model_validate(found | told)))


def test_what_spark_takes_is_in_the_environment_of_its_trials_alone() -> None:
    _, spark = experiment.load("spark")
    trials = plan("spark", spark, SETUP)
    wanted = {"dask": {}, "spark": {"pyspark": engines.VERSION}}
    assert {trial.engine for trial in trials} == set(wanted)
    assert all(trial.environment == wanted[trial.engine] for trial in trials)
    assert all(trial.engine == "dask" for trial in trials if trial.baseline or trial.null)
    assert all(trial.spark == {BROADCAST: -1} for trial in trials if trial.engine == "spark")


@pytest.mark.parametrize("name", engines.spark_workloads())
def test_a_workload_of_spark_has_no_parameters_but_those_of_dask_s_with_the_same_defaults(name: str) -> None:
    mine, theirs = ((WORKLOADS / f"{start}{name}.py").read_text() for start in (engines.PREFIX, ""))
    assert set(parameters(mine)) <= set(parameters(theirs))
    for parameter in parameters(mine):
        [default] = [line for line in theirs.split("(", 1)[1].split(",") if f" {parameter}:" in line]
        assert default.partition(")")[0].strip() in mine


def test_who_computed_and_with_which_settings_is_read_back() -> None:
    trial = asked(spark={BROADCAST: -1, "spark.shuffle.compress": False})
    client = {BROADCAST: "-1", "spark.shuffle.compress": "false"}
    packages = {"client": {"pyspark": engines.VERSION}}
    versions = {"spark": engines.VERSION}
    right: Json = {"config": {"client": client}, "packages": packages, "versions": versions}
    assert said(trial, **right) == []
    assert said(trial, **right | {"config": {"client": client | {BROADCAST: "10485760b"}}}) == [
        f"client: requested {BROADCAST} -1, it runs with 10485760b"
    ]
    assert said(trial, **right | {"versions": {"dask": "1"}}) == ["requested engine spark, but dask computed"]
    dask = asked(engine="dask")
    assert said(dask) == []
    assert said(dask, versions=versions) == ["requested engine dask, but spark computed"]


def test_a_fresh_cluster_s_first_run_is_told_by_itself(tmp_path: Path) -> None:
    trial = asked(engine="dask", warmups=2, runs=3)
    found = answers(json.loads(trial.to_json()), 1.0, random.Random(1))["timings.json"]
    first = found["samples"][0]["duration_s"]
    (tmp_path / "timings.json").write_text(json.dumps(found))
    rows = [row for row in samples(tmp_path) if row["metric"] == "cold_s"]
    assert [(row["value"], row["warmup"]) for row in rows] == [(first, False)]


def frame(seconds: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Runs that take a + b/rate, by engine (a, b in s and Mbit), and things that are not to be counted."""
    rows = [
        {
            "engine": engine,
            "work": "join",
            "rate_mbit": rate,
            "value": a + (b / rate if rate else 0),
            "block": block,
            "cell": f"engine={engine},rate_mbit={rate}",
        }
        for engine, (a, b) in seconds.items()
        for rate in (0, 100, 50)
        for block in (1, 2, 3)
    ]
    plain = {"metric": "compute_s", "warmup": False, "null": False, "status": "ok"}
    plain |= {"src": "", "dst": ""}
    wrong = {"engine": "dask", "work": "join", "rate_mbit": 50, "value": 1e6, "block": 1, "cell": "x"}
    spoilt: list[Json] = [{"warmup": True}, {"null": True}, {"status": "invalid"}, {"metric": "rtt_ms"}]
    found = pd.DataFrame([row | plain for row in rows] + [wrong | plain | each for each in spoilt])
    found.attrs["factors"] = ["engine", "work", "rate_mbit"]
    return found


def test_the_slope_over_the_rate_is_what_has_to_pass_the_slowest_link() -> None:
    """Whatever they take without a cap: 800 Mbit are 100 MB."""
    told = rate_slopes(frame({"dask": (1, 800), "spark": (30, 400)}), ["engine", "work", "rate_mbit"])
    assert [each.name for each in told] == ["engine=dask,work=join", "engine=spark,work=join"]
    assert [each.waited_mb.value for each in told] == pytest.approx([100, 50])
    assert told[0].rates_mbit == (0, 50, 100)
    [page] = table_of_slopes(frame({"dask": (1, 800)}))
    assert page.rows == [["engine=dask,work=join", "no cap, 50.0, 100", "100 (100 to 100)"]]


def test_without_a_factor_of_rates_there_is_no_slope() -> None:
    told = frame({"dask": (1, 800)})
    assert rate_slopes(told, ["engine", "work"]) == []
    assert rate_slopes(told[told.rate_mbit == 50], ["engine", "work", "rate_mbit"]) == []


def test_spark_is_made_a_wheel_of_once_and_found_when_the_rest_is_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path))
    told: list[list[str]] = []

    def pip(words: list[str]) -> None:
        told.append(words)
        if "--report" in words:
            install = [{"metadata": {"name": "pyspark", "version": engines.VERSION}}]
            Path(words[words.index("--report") + 1]).write_text(json.dumps({"install": install}))
        elif "--dest" in words:
            Path(words[words.index("--dest") + 1]).mkdir()

    monkeypatch.setattr(wheels, "_pip", pip)
    wheelhouse = wheels.fetch({"pyspark": engines.VERSION})
    assert (wheelhouse / "requirements.txt").read_text() == f"pyspark=={engines.VERSION}\n"
    wheel, *others = told
    assert wheel[2] == "wheel" and wheel[-1] == f"pyspark=={engines.VERSION}"
    made = wheel[wheel.index("--wheel-dir") + 1]
    assert [words[words.index("--find-links") + 1] for words in others] == [made, made]
    assert wheels.fetch({"pyspark": engines.VERSION}) == wheelhouse and len(told) == 3


def test_packages_are_looked_for_as_on_the_guest_and_kept_by_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIPVE_CACHE", str(tmp_path))
    monkeypatch.setattr(debs.sources, "mirrors", lambda suite: [f"deb http://mirror {suite} main"])
    monkeypatch.setattr(debs, "need", lambda *_: None)
    calls: list[list[str]] = []

    def run(words: list[str], log: Path, *_: Any) -> None:
        calls.append(words)
        if "install" in words:
            (log.parent / "archives" / "jre_17_amd64.deb").write_text("deb")

    monkeypatch.setattr(debs.work, "run_logged", run)
    status = tmp_path / "status"
    status.write_text("Package: libc6\n")
    archive = debs.fetch(status, ["jre"])
    with debs.tarfile.open(archive) as tar:
        assert tar.getnames() == ["jre_17_amd64.deb"]
    assert [words[-1] for words in calls] == ["update", "jre"]
    assert f"--option=Dir::State::status={status}" in calls[1] and "--download-only" in calls[1]
    assert debs.fetch(status, ["jre"]) == archive and len(calls) == 2
    status.write_text("Package: libc6\n\nPackage: jre-headless\n")
    assert debs.archive_path(status, ["jre"]) != archive
    assert list((tmp_path / "debs").glob(".build-*")) == []


def test_no_sentence_sets_the_seconds_of_two_engines_beside_each_other() -> None:
    def cell(engine: str, rate: int, times: float) -> Cell:
        ratio, factors = Interval(times, times - 0.1, times + 0.1), {"engine": engine, "rate_mbit": rate}
        name = f"engine={engine}, rate_mbit={rate}"
        change = Interval(times - 1)
        return Cell(
            name=name,
            factors=factors,
            baseline=not rate,
            n=3,
            trials=3,
            median=ratio,
            mean=times,
            lowest=times,
            highest=times,
            difference=change,
            ratio=ratio,
            least=0.1,
            shown=times != 1,
        )

    cells = [cell("dask", 0, 1), cell("dask", 100, 2), cell("spark", 0, 1), cell("spark", 100, 1.25)]
    found = Answer("compute_s", ("engine",), cells, Interval(0, -0.1, 0.1), {})
    told = sentences.sentence(found)
    assert "100 Mbit/s" in told and "2.00 (1.90 to 2.10)" in told and "spark" not in told
    told = " ".join(sentences.contrasts(found))
    assert "with spark" in told and "spark against dask" not in told

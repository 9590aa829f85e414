"""Bad experiment files, each with the one line that the user is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import experiment
from lab.errors import LabError

GOOD = """\
title: T
question: Q?
metrics: {compute_s: ~}
factors:
  delay_ms: {sets: links.scheduler.delay_ms, levels: [0, 5]}
"""

# what is replaced in the good file, by what, and what is then said
BAD = {
    "not a mapping": (GOOD, "- a\n- b\n", "an experiment is a mapping of keys to values, this is not"),
    "empty": (GOOD, "", "an experiment is a mapping of keys to values, this is not"),
    "yaml syntax": ("title: T", "title: [T", "line 2: expected ',' or ']', but got ':'"),
    "key twice": ("title: T", "title: T\ntitle: U", "line 2: key 'title' is given twice"),
    "unknown key": (
        "title: T",
        "titel: T\ntitle: T",
        "titel: unknown key; allowed: links, nics, bridge, workers, workload, runs, warmups, capture, ttl_s, probes, "
        "title, question, metrics, factors, blocks, seed, run_s, tolerances, quick",
    ),
    "missing key": ("question: Q?\n", "", "question: missing"),
    "unknown metric": (
        "compute_s",
        "compute_ms",
        "metrics.compute_ms: unknown key; allowed: compute_s, us_per_task, transfer_mb, rtt_ms, throughput_mbit, "
        "udp_mbit, frames",
    ),
    "no metric": (
        "{compute_s: ~}",
        "{}",
        "metrics: needs at least one entry",
    ),
    "unknown key of a factor": (
        "levels",
        "level",
        "factors.delay_ms.level: unknown key; allowed: sets, levels (and 1 more)",
    ),
    "no levels": ("[0, 5]", "[]", "factors.delay_ms.levels: needs at least one entry"),
    "level twice": ("[0, 5]", "[0, 5, 5]", "factors.delay_ms: a level is listed twice"),
    "list without sets": (
        "sets: links.scheduler.delay_ms, ",
        "",
        "factors.delay_ms: a list of levels needs `sets`, the setting that they are values of",
    ),
    "sets with names": (
        "[0, 5]",
        "{none: {}}",
        "factors.delay_ms: `sets` goes with a list of levels; levels with names carry their settings themselves",
    ),
    "sets what is not": (
        "links.scheduler.delay_ms",
        "links.scheduler.delay",
        "factors.delay_ms, level 0: links.scheduler.delay: unknown key; allowed: delay_ms, jitter_ms, loss_pct, "
        "reorder_pct, rate_mbit, direction, peer",
    ),
    "unknown host": (
        "links.scheduler",
        "links.worker-4",
        "factors.delay_ms, level 0: links.worker-4: no such host; allowed: client, scheduler, worker-1, worker-2, "
        "worker-3, cluster, workers",
    ),
    "negative delay": (
        "[0, 5]",
        "[0, -5]",
        "factors.delay_ms, level -5: links.scheduler.delay_ms: should be greater than or equal to 0, got -5",
    ),
    "text for a number": (
        "[0, 5]",
        "[0, 5ms]",
        "factors.delay_ms, level '5ms': links.scheduler.delay_ms: should be a valid number, unable to parse string "
        "as a number, got '5ms'",
    ),
    "loss above 100": (
        GOOD,
        GOOD + "links: {scheduler: {loss_pct: 101}}\n",
        "links.scheduler.loss_pct: should be less than or equal to 100, got 101",
    ),
    "jitter without delay": (
        GOOD,
        GOOD + "links: {worker-1: {jitter_ms: 5}}\n",
        "links.worker-1: jitter_ms and reorder_pct need a delay_ms above 0: netem acts on delayed frames",
    ),
    "unknown NIC model": (
        GOOD,
        GOOD + "nics: {cluster: {model: e1000e}}\n",
        "nics.cluster.model: 'e1000e' is not allowed; allowed: virtio, e1000, rtl8139",
    ),
    "unknown bridge mode": (
        GOOD,
        GOOD + "bridge: hub\n",
        "bridge: 'hub' is not allowed; allowed: learning, flooding",
    ),
    "unknown workload": (
        GOOD,
        GOOD + "workload: {name: sort}\n",
        "workload: no workload 'sort'; allowed: array_study, groupby, idle, join, matrix_product, merge, "
        "parallel_tasks, rechunk, straggler, tree_reduction",
    ),
    "unknown parameter": (
        GOOD,
        GOOD + "workload: {params: {sise: 100}}\n",
        "workload: array_study has no parameter 'sise'; allowed: size, chunk",
    ),
    "no runs": (GOOD, GOOD + "runs: 0\n", "runs: should be greater than or equal to 1, got 0"),
    "half a run": (
        GOOD,
        GOOD + "runs: 2.5\n",
        "runs: should be a valid integer, got a number with a fractional part, got 2.5",
    ),
    "reserved factor": (
        "delay_ms: {",
        "value: {",
        "factors.value: a factor needs a name like delay_ms, and not this one",
    ),
    "mistake in quick": (
        GOOD,
        GOOD + "quick: {run: 3}\n",
        "with quick: run: unknown key; allowed: links, nics, bridge, workers, workload, runs, warmups, capture, ttl_s, "
        "probes, title, question, metrics, factors, blocks, seed, run_s, tolerances, quick",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_one_clear_line(name: str, tmp_path: Path) -> None:
    replaced, by, said = BAD[name]
    assert replaced in GOOD
    path = tmp_path / "mine.yml"
    path.write_text(GOOD.replace(replaced, by))
    with pytest.raises(LabError) as error:
        experiment.load(str(path))
    comma = said.startswith(("line ", "with quick"))
    assert str(error.value) == f"mine.yml{',' if comma else ':'} {said}"
    assert "\n" not in str(error.value)


def test_good_file_is_good(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(GOOD)
    name, content = experiment.load(str(path))
    assert (name, content.title) == ("mine", "T")


def test_unknown_experiment_names_the_known() -> None:
    with pytest.raises(LabError, match="no experiment 'nix'; there are: bridge_rate, delay_scheduler"):
        experiment.load("nix")


def test_missing_file() -> None:
    with pytest.raises(LabError, match="nowhere.yml: No such file"):
        experiment.load("nowhere.yml")


@pytest.mark.parametrize("name", experiment.names())
def test_every_experiment_that_comes_along_is_good(name: str) -> None:
    experiment.load(name)


def test_schema_file_is_current() -> None:
    assert (experiment.EXPERIMENTS / "schema.json").read_text() == experiment.json_schema()

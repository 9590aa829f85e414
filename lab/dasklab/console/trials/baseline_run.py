"""The baseline: each lab is measured once as it is, so that ``dasklab up`` ends with a result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from dasklab import atomic
from dasklab.console.lab.locking import locked
from dasklab.console.trials.progress import execute
from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.model.experiments import experiment
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import Setup
from dasklab.model.files import Campaign
from dasklab.model.settings.hosts import host_names
from dasklab.model.settings.metric import METRICS, Metric
from dasklab.results.run import Run, Trial, open_run
from dasklab.results.table import table
from dasklab.results.validity import completeness
from dasklab.running.driver import driver
from dasklab.running.driver.driver import ActiveRun
from dasklab.running.plan.setup import setup_of
from dasklab.running.playbooks.ansible_lab import AnsibleLab
from dasklab.terminal import counted, echo, print_prose, print_table

if TYPE_CHECKING:
    import pandas as pd


def measure(lab: Inventory, root: Path, *, again: bool = False, details: bool = False) -> None:
    """Measure the lab's baseline unless it has a valid one, and print a sentence, or every metric in detail.

    Raises:
        LabError: the trial failed or is invalid; the message contains the reasons.
    """
    setup = setup_of(lab)
    run = None if again else _stored_run(lab, setup)
    if run and not run.pending():
        print_prose(
            f"Using the baseline measured on {_measured_on(run.opened_again())}."
            " To measure again: dasklab baseline --again"
        )
    else:
        with locked(lab, reset=True):
            # Look again under the lock: another command may have measured it in the meantime.
            run = (None if again else _stored_run(lab, setup)) or _new_run(lab, setup, root)
            execute(run, AnsibleLab(lab.path))
        _refuse_failed(run.opened_again())
    show(run.opened_again(), details=details)


def show(run: Run, *, details: bool = False) -> None:
    """Print the baseline in a sentence, and what to do next; with ``details`` a row of each metric, too."""
    frame = table(run)
    groups = frame[~frame["warmup"]].groupby("metric", sort=False)["value"]
    values = {str(name): group for name, group in groups}
    print_prose(f"\n{sentence(values)}")
    if details:
        echo()
        rows = [_row(METRICS[name], rows) for name, rows in values.items()]
        print_table(("", "values", "median", "least", "most"), rows)
        echo()
    for trial in run.trials:
        _show_capture(trial, details=details)
    echo(f"Report: dasklab report {quote(str(run))}")
    echo("Next:   dasklab run slow_links --quick")


def sentence(values: Mapping[str, pd.Series[float]]) -> str:
    """Return the baseline in one sentence: time to compute, what the links do, and what was lost."""

    def median(name: str) -> str:
        return METRICS[name].quantity(values[name].median())

    repeats_s = values["compute_s"]
    least, most = map(METRICS["compute_s"].format, (repeats_s.min(), repeats_s.max()))
    count = counted(len(repeats_s), "repeat")
    parts = [f"{median('compute_s')} to compute ({least} to {most} in {count})"]
    links = {"throughput_mbit": "links", "rtt_ms": "RTT"}
    parts += [f"{word} {median(name)}" for name, word in links.items() if name in values]
    if "drop_events" in values:
        drops = int(values["drop_events"].sum())
        parts.append(f"{counted(drops, 'frame')} dropped" if drops else "nothing dropped")
    return f"Baseline: {'; '.join(parts)}."


def _row(metric: Metric, values: pd.Series[float]) -> tuple[str, ...]:
    """Return a metric's row: how many values there are, their median, the least and the most."""
    numbers = map(metric.format, (values.median(), values.min(), values.max()))
    return (metric.heading, str(len(values)), *numbers)


def _show_capture(trial: Trial, *, details: bool) -> None:
    """Print what a trial's capture lacks, and with ``details`` the command that reads it."""
    summary = completeness.read(trial)
    if summary is None:
        return
    if details and summary.messages:
        size_mb = sum(capture.stat().st_size for capture in trial.captures) / 1e6
        command = f"dasklab wire {quote(str(trial))}/capture*.pcap"
        echo(f"To read Dask's messages in the capture ({size_mb:.1f} MB): {command}")
    if problem := completeness.line(summary):
        echo(problem, fg="red", bold=True)


def _pointer(lab: Inventory) -> Path:
    """Return the file that holds the path of this lab's baseline run."""
    return Path(lab.value(lab.hosts()[0], "lab_state_dir")) / "baseline"


def _stored_run(lab: Inventory, setup: Setup) -> ActiveRun | None:
    """Return this lab's baseline run; None if there is none, if it is invalid or if the inventory changed."""
    pointer = _pointer(lab)
    directory = (
        Path(pointer.read_text(errors="replace", encoding="utf-8").strip()) if pointer.exists() else None
    )
    if directory is None or not (directory / Campaign.FILE).exists():
        return None
    run = open_run(directory)
    if not run.setup.is_same_lab(setup) or _failed_trials(run):
        return None
    return driver.resume(run, setup)


def _new_run(lab: Inventory, setup: Setup, root: Path) -> ActiveRun:
    quick = bool(lab.optional(lab.hosts()[0], "lab_quick"))
    name, content = experiment.load("baseline", quick)
    content = fitting(content, setup)
    run = driver.start(root, name, content, setup, quick=quick)
    atomic.write_text(_pointer(lab), f"{run.stored.folder.resolve()}\n")
    return run


def fitting(content: Experiment, setup: Setup) -> Experiment:
    """Return the experiment with as many workers as it has, or as a smaller lab has."""
    workers = sum(host in setup.hosts for host in host_names(content.workers)[2:])
    return content.model_copy(update={"workers": max(1, workers)})


def _measured_on(run: Run) -> str:
    started = max(trial.attempt.started for trial in run.trials)
    return f"{datetime.fromtimestamp(started):%Y-%m-%d %H:%M}"


def _failed_trials(run: Run) -> list[Trial]:
    """Return the finished trials that failed or are invalid."""
    return [trial for trial in run.trials if not trial.is_valid]


def _refuse_failed(run: Run) -> None:
    for trial in _failed_trials(run):
        reasons = "; ".join(trial.result.reasons)
        raise LabError(
            f"the baseline trial is {trial.result.status}: {reasons}",
            f"its files are in {trial}; to measure again: dasklab baseline --again",
        )

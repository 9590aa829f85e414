"""Each lab is measured once as it is, so that `up` ends with a result; doing it again finds it done."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from dasklab import atomic
from dasklab.commands.locking import locked
from dasklab.commands.progress import execute
from dasklab.errors import LabError
from dasklab.machines.inventory import Inventory
from dasklab.model import experiment
from dasklab.model.files import Campaign, Result
from dasklab.model.trial import Setup
from dasklab.results import load
from dasklab.results.storage import store
from dasklab.results.validity import completeness
from dasklab.running import driver
from dasklab.running.ansible_lab import AnsibleLab
from dasklab.running.setup import setup_of
from dasklab.terminal import print_table


def measure(lab: Inventory, root: Path, *, again: bool = False) -> None:
    """Measure the lab's baseline unless that was done, and show it. One that was no good is measured anew.

    Raises:
        LabError: the trial failed or was found invalid; its reasons are in the message.
    """
    setup = setup_of(lab)
    run = None if again else _begun(lab, setup)
    if run and not run.pending():
        click.echo("baseline: found; to measure it again: dasklab baseline --again")
    else:
        with locked(lab, reset=True):
            run = (None if again else _begun(lab, setup)) or _begin(lab, setup, root)
            execute(run, AnsibleLab(lab.path))
        _refuse_failed(run.directory)
        click.echo("baseline: measured")
    show(run.directory)


def show(run: Path) -> None:
    """Print what the baseline says, a line per metric, and where its captures are."""
    frame = load(run)
    rows = []
    for metric, values in frame[~frame["warmup"]].groupby("metric", sort=False)["value"]:
        numbers = (f"{value:.3g}" for value in (values.median(), values.min(), values.max()))
        rows.append((str(metric), str(len(values)), *numbers))
    click.echo(f"Baseline: {run}\n")
    print_table(("measured", "n", "median", "least", "most"), rows)
    for trial in store.finished(run):
        _show_capture(trial)


def _show_capture(trial: Path) -> None:
    """Where a trial's capture is, unless there is nothing in it to look at; and loudly what it misses."""
    found = completeness.read(trial)
    captures = sorted(trial.glob("capture*.pcap"))
    if found is None:
        return
    if found.messages:
        size = sum(capture.stat().st_size for capture in captures) / 1e6
        click.echo(f"\nWhat Dask said ({size:.1f} MB): dasklab wire {quote(str(trial))}/capture*.pcap")
    if missing := completeness.line(found):
        click.secho(missing, fg="red", bold=True)


def _pointer(lab: Inventory) -> Path:
    """The file that says where this lab's baseline is."""
    return Path(lab.value(lab.hosts()[0], "lab_state_dir")) / "baseline"


def _begun(lab: Inventory, setup: Setup) -> driver.Ongoing | None:
    """The run that was begun for this lab; with another inventory it is another lab."""
    pointer = _pointer(lab)
    directory = Path(pointer.read_text(errors="replace").strip()) if pointer.exists() else None
    if directory is None or not (directory / Campaign.FILE).exists():
        return None
    if store.read_run(directory).setup != setup or _bad(directory):
        return None
    return driver.resume(directory, setup)


def _begin(lab: Inventory, setup: Setup, root: Path) -> driver.Ongoing:
    quick = bool(lab.optional(lab.hosts()[0], "lab_quick"))
    name, content = experiment.load("baseline", quick)
    run = driver.start(root, name, content, setup, quick=quick)
    pointer = _pointer(lab)
    atomic.write_text(pointer, f"{run.directory.resolve()}\n")
    return run


def _bad(directory: Path) -> list[tuple[Path, Result]]:
    """The finished trials that measured nothing to rely on."""
    results = [(trial, store.need(Result, trial)) for trial in store.finished(directory)]
    return [(trial, result) for trial, result in results if result.status != "ok"]


def _refuse_failed(directory: Path) -> None:
    for trial, result in _bad(directory):
        reasons = "; ".join(result.reasons)
        raise LabError(f"the baseline trial is {result.status}: {reasons}", f"its files: {trial}")

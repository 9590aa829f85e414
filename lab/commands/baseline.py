"""Each lab is measured once as it is, so that `up` ends with a result; doing it again finds it done."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.commands.experiments import execute
from lab.errors import LabError
from lab.machines.inventory import Inventory
from lab.model import experiment
from lab.model.files import Result, Run
from lab.model.trial import Setup
from lab.results import completeness, load, store
from lab.running import driver
from lab.running.ansible_lab import AnsibleLab, alone
from lab.running.setup import setup_of


def ensure(inventory: Inventory, root: Path) -> tuple[Path, bool]:
    """Return the run directory of the lab's baseline, and whether it was measured just now.

    Raises:
        LabError: the trial failed or was found invalid; its reasons are in the message.
    """
    host = inventory.hosts()[0]
    pointer = Path(inventory.value(host, "lab_state_dir")) / "baseline"
    setup = setup_of(inventory)
    run = _begun(pointer, setup)
    if run is None:
        quick = bool(inventory.optional(host, "lab_quick"))
        name, content = experiment.load("baseline", quick)
        run = driver.start(root, name, content, setup, quick=quick)
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.write_text(f"{run.directory.resolve()}\n")
    fresh = bool(run.pending())
    if fresh:
        with alone(inventory.path):
            execute(run, AnsibleLab(inventory.path))
    _refuse_failed(run.directory)
    return run.directory, fresh


def show(run: Path) -> None:
    """Print what the baseline says, a line per metric, and where its captures are."""
    frame = load(run)
    frame = frame[~frame["warmup"]]
    table = Table("measured", "n", "median", "least", "most", box=None)
    for metric, values in frame.groupby("metric", sort=False)["value"]:
        numbers = (f"{v:.3g}" for v in (values.median(), values.min(), values.max()))
        table.add_row(str(metric), str(len(values)), *numbers)
    print(f"Baseline: {run}\n")
    Console().print(table)
    captures = sorted(run.rglob("capture*.pcap"))
    if captures:
        size = sum(capture.stat().st_size for capture in captures) / 1e6
        print(f"\nWhat Dask said ({size:.1f} MB): dasklab wire {captures[0].parent}/capture*.pcap")
        if lost := completeness.line(completeness.read(captures[0].parent)):
            print(lost)


def _begun(pointer: Path, setup: Setup) -> driver.Run | None:
    """The run that was begun for this lab; another inventory is another lab."""
    directory = Path(pointer.read_text().strip()) if pointer.exists() else None
    if directory is None or not (directory / Run.FILE).exists():
        return None
    return driver.resume(directory, setup) if store.read_run(directory).setup == setup else None


def _refuse_failed(directory: Path) -> None:
    for trial in store.finished(directory):
        result = store.need(Result, trial)
        if result.status != "ok":
            raise LabError(
                f"the baseline trial is {result.status}: {'; '.join(result.reasons)}", f"its files: {trial}"
            )

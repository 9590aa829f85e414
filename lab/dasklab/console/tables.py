"""Results as tables on a terminal: runs, the cells of a run, two runs side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from dasklab.comparison.comparison import CellChange
from dasklab.comparison.runs import compare_runs
from dasklab.errors import LabError
from dasklab.model.experiments import cells
from dasklab.model.forms.json_output import CONFIG, Number, to_json
from dasklab.model.forms.number_format import UNKNOWN
from dasklab.model.settings.metric import METRICS
from dasklab.notices import warn
from dasklab.paths import display_path
from dasklab.records.document import read_document
from dasklab.results import load
from dasklab.results.run import Run, contains_runs, find_records, find_runs
from dasklab.results.statistics import identity, reasons
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.answers import answers
from dasklab.results.statistics.interval import Interval, format_interval
from dasklab.results.statistics.typical import by_node
from dasklab.results.table import table, write_table
from dasklab.terminal import duration, echo, print_prose, print_table


@dataclass(frozen=True)
class RunRow:
    """A row of `dasklab results`."""

    run: Annotated[str, Field(description="Folder of the run.")]
    quick: Annotated[bool, Field(description="Whether it was run with --quick.")]
    planned: Annotated[int, Field(description="Trials that were planned.")]
    finished: Annotated[int, Field(description="Trials that have a result.")]
    ok: Annotated[int, Field(description="Trials that are valid.")]
    accelerator: Annotated[str, Field(description="kvm, tcg, lxc or simulated; ? if unknown.")]


@dataclass(frozen=True)
class RecordRow:
    """A row of `dasklab results`: the record of a cluster that is not a lab's."""

    record: Annotated[str, Field(description="Folder of the record.")]
    start: Annotated[float, Field(description="When it begins, in seconds since 1970.")]
    duration_s: Annotated[float, Field(description="How long was recorded.")]
    complete: Annotated[bool | None, Field(description="Whether nothing is missing; null if unknown.")]


@dataclass(frozen=True)
class MetricTable:
    """One metric of a run; without cells if there is no valid baseline."""

    metric: str
    title: str
    unit: str
    blocks: int
    noise_floor: Annotated[Number, Field(description="The smallest difference that would be shown.")]
    cells: list[Cell]

    @classmethod
    def of(cls, metric: str, answer: Answer | None) -> MetricTable:
        title, unit = METRICS[metric].title, METRICS[metric].unit
        if answer is None:
            return cls(metric, title, unit, 0, math.nan, [])
        return cls(metric, title, unit, answer.blocks, answer.noise_floor, answer.cells)


@dataclass(frozen=True)
class ShownRun:
    """What `dasklab results show` prints."""

    __pydantic_config__: ClassVar[ConfigDict] = CONFIG

    run: str
    simulated_from: Annotated[
        str | None, Field(description="The trial whose costs a simulated run uses, else null.")
    ]
    trials: Annotated[
        dict[str, int], Field(description="Trials by status: ok, invalid, unsupported, failed.")
    ]
    metrics: list[MetricTable]


def list_runs(root: Path, as_json: bool = False) -> None:
    """Print all runs below a directory, with the numbers of their valid trials, and all records."""
    recorded = list(_record_rows(root))
    runs = [_run_row(run) for run in find_runs(root)] if contains_runs(root) or not recorded else []
    if as_json:
        echo(to_json([*runs, *recorded], list[RunRow | RecordRow]))
        return
    if runs:
        _print_runs(runs)
    if runs and recorded:
        echo()
    if recorded:
        _print_records(recorded)


def _print_runs(runs: list[RunRow]) -> None:
    rows = [
        (
            display_path(Path(row.run)),
            "quick" if row.quick else "full",
            f"{row.finished}/{row.planned}",
            str(row.ok),
            row.accelerator,
        )
        for row in runs
    ]
    print_table(("run", "form", "trials", "ok", "accelerator"), rows)


def _print_records(recorded: list[RecordRow]) -> None:
    completeness = {True: "yes", False: "no", None: "unknown"}
    rows = [
        (
            display_path(Path(row.record)),
            f"{datetime.fromtimestamp(row.start):%Y-%m-%d %H:%M}",
            duration(row.duration_s),
            completeness[row.complete],
        )
        for row in recorded
    ]
    print_table(("record", "begins", "lasts", "complete"), rows)


def _record_rows(root: Path) -> Iterator[RecordRow]:
    """Yield the records below a directory; report those that are damaged."""
    for record in find_records(root):
        try:
            document = read_document(record.folder)
        except LabError as error:
            warn(f"{error.message}; the record is left out")
            continue
        yield RecordRow(str(record), document.start, document.stop - document.start, document.complete)


def _run_row(run: Run) -> RunRow:
    return RunRow(
        run=str(run.folder),
        quick=run.document.quick,
        planned=len(run.planned),
        finished=len(run.trials),
        ok=sum(trial.is_valid for trial in run.trials),
        accelerator="simulated" if identity.simulated_from(run) else identity.accelerator(run) or "?",
    )


def print_run_as_json(run: Run) -> None:
    """Print the cells of a run as JSON."""
    by_metric = answers(table(run), run.metrics)
    statuses: Counter[str] = Counter(trial.result.status for trial in run.trials)
    document = ShownRun(
        run=str(run.folder),
        simulated_from=identity.simulated_from(run),
        trials=dict(statuses),
        metrics=[MetricTable.of(metric, answer) for metric, answer in by_metric.items()],
    )
    echo(to_json(document, ShownRun))


def show_run(run: Run) -> None:
    """Print the cells of a run, metric by metric, and why differences are not shown."""
    frame = table(run)
    _print_origin(run)
    by_metric = answers(frame, run.metrics)
    for metric, answer in by_metric.items():
        if answer is None:
            unknown = identity.simulated_from(run) and not frame.metric.eq(metric).any()
            echo(f"{_title(metric)}: {'not simulated' if unknown else 'no valid baseline'}")
            continue
        missing = _missing_cells(run, {cell.name for cell in answer.cells})
        _print_cells(answer, identity.heading_suffix(run), missing)
        for line in reasons.not_shown(answer):
            print_prose(line)
        _print_nodes(metric, by_node(frame, metric))
    _print_left_out(run)
    main = next(iter(by_metric.values()))
    if main and (blocks := reasons.blocks_needed(main)):
        _print_blocks_needed(run, main, blocks)


def show_changes(old: Run, new: Run, anyway: bool, as_json: bool = False) -> None:
    """Print the cells that two runs have in common, new compared with old."""
    if as_json:
        echo(to_json(compare_runs(old, new, anyway).changes, list[CellChange]))
        return
    suffixes = [identity.heading_suffix(run) for run in (old, new)]
    heads = ("cell", f"old{suffixes[0]}", f"new{suffixes[1]}", "new / old", "difference")
    for name, changes in groupby(compare_runs(old, new, anyway).changes, lambda change: change.metric):
        metric = METRICS[name]
        rows = [
            (
                change.cell,
                metric.format(change.old),
                metric.format(change.new),
                UNKNOWN if change.ratio.low <= 0 else format_interval(change.ratio),
                _verdict(change),
            )
            for change in changes
        ]
        print_table(heads, rows, metric.heading)


def export_table(path: Path, output: Path) -> None:
    """Write the tidy table of a run, or of all runs below a directory, to a file."""
    write_table(load(path), output)


def _title(metric: str) -> str:
    return f"{METRICS[metric].heading} ({metric})"


def _print_origin(run: Run) -> None:
    if origin := identity.simulated_from(run):
        echo(f"Simulated, not measured: with the costs of {origin}.\n")


def _print_cells(answer: Answer, suffix: str, missing: list[tuple[str, ...]]) -> None:
    """Print a row per cell. Each factor has a column, so that cells are distinct on a narrow terminal."""
    factors = list(answer.cells[0].factors)
    rows = []
    for cell in answer.cells:
        levels = [str(level) for level in cell.factors.values()] or [cell.name]
        median = format_interval(cell.median, number=METRICS[answer.metric].format)
        ratio = "baseline" if cell.baseline else format_interval(cell.ratio)
        verdict = "" if cell.baseline else cell.verdict
        rows.append((*levels, str(cell.n), median, ratio, verdict))
    heads = (*(factors or ["cell"]), "n", "median", "x baseline", "difference")
    print_table(heads, rows + missing, title=f"{_title(answer.metric)}{suffix}")


def _missing_cells(run: Run, measured: set[str]) -> list[tuple[str, ...]]:
    """Return rows for the planned cells without a valid trial: levels, and what became of the trials."""
    experiment = run.experiment
    statuses: dict[str, Counter[str]] = {}
    for trial in run.trials:
        statuses.setdefault(trial.result.cell, Counter())[trial.result.status] += 1
    rows = []
    for cell in cells.cells(experiment):
        levels = cells.levels_of(experiment, cell)
        name = cells.cell_name(levels)
        if name not in measured and run.document.only in (None, name):
            counts = ", ".join(
                f"{count} {status}" for status, count in statuses.get(name, {}).items() if status != "ok"
            )
            heads = [str(level) for level in levels.values()] or [name]
            rows.append((*heads, "0", f"missing: {counts or 'not measured'}", "", ""))
    return rows


def _print_nodes(metric: str, nodes: dict[str, tuple[int, Interval]]) -> None:
    """Print the baseline's probes by node: within one node, or from one to another."""
    rows = [
        (
            node.replace(" ", " - "),
            "another node" if " " in node else "same node",
            str(n),
            format_interval(median, number=METRICS[metric].format),
        )
        for node, (n, median) in sorted(nodes.items(), key=lambda item: (item[0].count(" "), item[0]))
    ]
    if rows:
        print_table(("node", "way", "n", "median"), rows, title=f"{_title(metric)}, baseline, by node")


def _print_left_out(run: Run) -> None:
    statuses: dict[str, list[str]] = {}
    for trial in run.trials:
        statuses.setdefault(trial.requested.cell_title, []).append(trial.result.status)
    for line in reasons.left_out(statuses):
        print_prose(line)


def _print_blocks_needed(run: Run, answer: Answer, blocks: int) -> None:
    """Print how many more blocks would show a difference worth showing, and how long they take."""
    block_s = sum(trial.attempt.wall_s for trial in run.trials) / max(1, answer.blocks)
    print_prose(
        f"{reasons.blocks_are(answer.blocks).capitalize()} too few to distinguish a difference of"
        f" x {reasons.WORTH_SHOWING} from noise. To run more"
        f" (about {duration(block_s * (blocks - answer.blocks))}): dasklab run {run} --blocks {blocks}"
    )


def _verdict(change: CellChange) -> str:
    if change.old == change.new == 0:
        return "none"
    if math.isnan(change.ratio.low):
        return "too few blocks"
    return "shown" if change.is_shown else "not shown"

"""What results look like on a terminal: runs, cells against the baseline, two runs side by side."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from dasklab.model import cells
from dasklab.model.files import Result
from dasklab.model.number_format import format_number
from dasklab.model.trial import Trial
from dasklab.results import load
from dasklab.results.statistics import compare, identity, reasons
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.answers import answers
from dasklab.results.statistics.interval import Interval, format_interval
from dasklab.results.statistics.typical import by_node
from dasklab.results.storage import store
from dasklab.results.storage.table import write_table
from dasklab.terminal import console, duration, print_table


def list_runs(root: Path) -> None:
    """Print all runs below a directory, with how many of their trials are done and valid."""
    rows = []
    for run in store.find(root):
        document, done = store.read_run(run), store.finished(run)
        valid = sum(store.need(Result, directory).status == "ok" for directory in done)
        form = "quick" if document.quick else "full"
        trials = f"{len(done)}/{len(document.order)}"
        where = "simulated" if identity.simulated_from(run) else identity.accelerator(run) or "?"
        rows.append((str(run), form, trials, str(valid), where))
    print_table(("run", "form", "trials", "ok", "accelerator"), rows)


def show_run(run: Path) -> None:
    """Print the cells of a run, metric by metric."""
    frame = load(run)
    _warn(run)
    found_by_metric = answers(frame, list(store.read_run(run).experiment["metrics"]))
    for metric, found in found_by_metric.items():
        if found is None:
            unsaid = identity.simulated_from(run) and not frame.metric.eq(metric).any()
            click.echo(f"{metric}: {'not simulated' if unsaid else 'no valid baseline'}")
            continue
        _print_cells(found, identity.heading_suffix(run), _missing(run, {cell.name for cell in found.cells}))
        for line in reasons.not_shown(found):
            _print(line)
        _print_nodes(metric, by_node(frame, metric))
    _print_left_out(run)
    main = next(iter(found_by_metric.values()))
    if main and (blocks := reasons.blocks_needed(main)):
        _print_blocks(run, main, blocks)


def _print_left_out(run: Path) -> None:
    statuses: dict[str, list[str]] = {}
    for directory in store.finished(run):
        trial, result = store.need(Trial, directory), store.need(Result, directory)
        statuses.setdefault("null trial" if trial.null else trial.cell, []).append(result.status)
    for line in reasons.left_out(statuses):
        _print(line)


def _print_blocks(run: Path, answer: Answer, blocks: int) -> None:
    """How many more blocks would show a difference worth showing, and how long they take."""
    attempts = store.attempts(run)
    block_s = sum(attempt.wall_s for attempt in attempts) / max(1, answer.blocks)
    _print(
        f"{reasons.blocks_are(answer.blocks).capitalize()} too few to tell a difference of "
        f"x {reasons.WORTH_SHOWING} from noise; add `--blocks {blocks}`"
        f" (about {duration(block_s * (blocks - answer.blocks))}):"
        f" dasklab run {run} --blocks {blocks}",
    )


def _warn(run: Path) -> None:
    """Say of a simulated run that it is one."""
    if origin := identity.simulated_from(run):
        click.echo(f"Simulated, not measured: with the costs of {origin}.\n")


def _print_nodes(metric: str, found: dict[str, tuple[int, Interval]]) -> None:
    """The baseline's probes by where they went: on one node, or from one to another."""
    rows = [
        (
            node.replace(" ", " - "),
            "another node" if " " in node else "same node",
            str(n),
            format_interval(median),
        )
        for node, (n, median) in sorted(found.items(), key=lambda item: (item[0].count(" "), item[0]))
    ]
    if rows:
        print_table(("node", "way", "n", "median"), rows, title=f"{metric}, baseline, by node")


def show_changes(old: Path, new: Path, anyway: bool) -> None:
    """Print the cells that two runs have in common, new against old."""
    old_is, new_is = map(identity.heading_suffix, (old, new))
    rows = [
        (
            change.metric,
            change.cell,
            format_number(change.old),
            format_number(change.new),
            format_interval(change.ratio),
            _verdict(change),
        )
        for change in compare.compare(old, new, anyway)
    ]
    print_table(("metric", "cell", f"old{old_is}", f"new{new_is}", "new / old", "difference"), rows)


def _print(line: str) -> None:
    """Print a line that may be wider than the terminal."""
    console(sys.stdout).print(line, markup=False, highlight=False)


def _verdict(change: compare.CellChange) -> str:
    if change.ratio.low != change.ratio.low:
        return "too few blocks"
    return "shown" if change.shown else "not shown"


def export_table(path: Path, output: Path) -> None:
    """Write the tidy table of a run, or of all runs below a directory, to a file."""
    write_table(load(path), output)


def _missing(run: Path, shown: set[str]) -> list[tuple[str, ...]]:
    """Rows for the planned cells that have no valid trial: their levels, and what became of their trials."""
    begun = store.read_run(run)
    experiment = store.experiment(begun)
    states: dict[str, Counter[str]] = {}
    for trial in store.finished(run):
        result = store.need(Result, trial)
        states.setdefault(result.cell, Counter())[result.status] += 1
    rows = []
    for cell in cells.cells(experiment):
        levels = cells.levels_of(experiment, cell)
        name = cells.cell_name(levels)
        if name not in shown and begun.only in (None, name):
            counts = ", ".join(
                f"{count} {state}" for state, count in states.get(name, {}).items() if state != "ok"
            )
            heads = [str(level) for level in levels.values()] or [name]
            rows.append((*heads, "0", f"missing: {counts or 'not measured'}", "", ""))
    return rows


def _print_cells(found: Answer, mark: str, missing: list[tuple[str, ...]]) -> None:
    """A column for each factor, so that what sets cells apart is seen however narrow the terminal is."""
    factors = list(found.cells[0].factors)
    rows = []
    for cell in found.cells:
        levels = [str(level) for level in cell.factors.values()] or [cell.name]
        ratio = "baseline" if cell.baseline else format_interval(cell.ratio)
        verdict = "" if cell.baseline else "shown" if cell.shown else "not shown"
        rows.append((*levels, str(cell.n), format_interval(cell.median), ratio, verdict))
    rows += missing
    heads = (*(factors or ["cell"]), "n", "median", "x baseline", "difference")
    print_table(heads, rows, title=f"{found.metric}{mark}")

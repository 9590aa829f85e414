"""``dasklab explain``: where the time of runs went. Its modules are imported on use: they need pandas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasklab.console.path_types import OutputFile, RunPath
from dasklab.console.picture import save_picture
from dasklab.errors import LabError
from dasklab.paths import display_path
from dasklab.terminal import echo, print_prose, print_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dasklab.breakdown.answers.summary import Summary
    from dasklab.breakdown.show.documents import RecordEnd
    from dasklab.breakdown.show.explain import Explained
    from dasklab.comparison.comparison import Causes
    from dasklab.results.run import Run
    from dasklab.results.statistics.answer import Answer

FOLDER = RunPath(file_okay=False)


class TraceFile(OutputFile):
    """A file to write a trace to. The only format is Perfetto's, so names that end in .json are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from dasklab.breakdown.show.trace.perfetto import SUFFIX  # a missing package fails before the work

        path = super().convert(value, param, ctx)
        if path.suffix.lower() == ".json":
            name = path.with_suffix(SUFFIX).name
            self.fail(f"{path}: traces are written in Perfetto's format only; name it {name}", param, ctx)
        return path


@click.command()
@click.argument("first", metavar="TRIAL|RUN", type=FOLDER)
@click.argument("others", metavar="[TRIAL|RUN]...", nargs=-1, type=FOLDER)
@click.option("--operation", type=click.IntRange(min=1), help="Explain only this operation of a record.")
@click.option(
    "--why",
    is_flag=True,
    help="List the evidence of each clause and of the advice: tasks, transfers, threads.",
)
@click.option("--memory", is_flag=True, help="List the peak memory of workers for each kind of task.")
@click.option(
    "--all", "everything", is_flag=True, help="List all causes, operations, stages, rates and clocks."
)
@click.option("--captured", is_flag=True, help="Explain the captured repeats instead of the timed ones.")
@click.option("--trace", type=TraceFile(), help="Write TRIAL as a trace (FILE.pftrace) for ui.perfetto.dev.")
@click.option("--profile", type=OutputFile(), help="Write Dask's profile of TRIAL for speedscope.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
def explain(
    first: Path,
    others: tuple[Path, ...],
    operation: int | None,
    why: bool,
    memory: bool,
    everything: bool,
    captured: bool,
    trace: Path | None,
    profile: Path | None,
    as_json: bool,
) -> None:
    """Break down the time of every worker thread by cause.

    \b
    dasklab explain TRIAL         sentences, causes; a picture into its folder
    dasklab explain TRIAL TRIAL   what the second spends more, and where
    dasklab explain RUN           the baseline, and what other cells spend more
    dasklab explain RUN RUN       what the cells of the second run spend more
    dasklab explain RECORD        the whole, and a row per computation
    dasklab explain RECORD --why  what each clause and the advice rest on
    dasklab explain RECORD RECORD RECORD...
                                  what varies between records of one program

    A record can be compared and exported like a trial. RUN and RECORD may be packed: run.zip, and of a trial
    in it run.zip/1-01-baseline. The exit status is 3 if what is read is damaged.
    """
    from dasklab import records
    from dasklab.results.run import open_run

    run = open_run(first)
    of_one_trial = {
        "--operation": operation,
        "--why": why or None,
        "--memory": memory or None,
        "--all": everything or None,
        "--trace": trace,
        "--profile": profile,
    }
    if run.is_experiment:
        _refuse(of_one_trial, f"{run}: a run of an experiment")
        if not others:
            _explain_run(run, captured, as_json)
        elif len(others) > 1:
            raise click.UsageError("two runs of experiments are compared at a time; three or more: records")
        else:
            _explain_runs(run, _second_run(others[0]), captured, as_json)
        return
    if others:
        _refuse({**of_one_trial, "--operation": None}, "several trials are compared")
    with records.reading(" ".join(map(str, (first, *others)))):
        trials = _explained(run, others, captured, operation)
        if others:
            (_print_variation if len(trials) > 2 else _print_trials)(trials, as_json)
            return
        (trial,) = trials
        if as_json:
            _print_json(trial, run.name, why)
        elif why:
            _print_evidence(trial)
        elif memory:
            _print_memory(trial)
        else:
            _print_trial(trial, run.name, everything)
        _write_files(trial, trace, profile)


def _explained(run: Run, others: tuple[Path, ...], captured: bool, operation: int | None) -> list[Explained]:
    from dasklab.breakdown.show.explain import explain
    from dasklab.results.run import open_trial

    trial = explain(run.single, captured)
    first = trial if operation is None else trial.only(operation)
    return [first, *(explain(open_trial(other), captured) for other in others)]


def _write_files(trial: Explained, trace: Path | None, profile: Path | None) -> None:
    if trace:
        _write_trace(trial, trace)
    if profile:
        _write_profile(trial, profile)


def _second_run(folder: Path) -> Run:
    """Open what a run of an experiment is compared with.

    Raises:
        UsageError: it is a trial or a record.
    """
    from dasklab.results.run import open_run

    run = open_run(folder)
    if not run.is_experiment:
        raise click.UsageError(f"{folder}: a trial; compare a run of an experiment with another run")
    return run


def _refuse(values: Mapping[str, Any], why: str) -> None:
    """Refuse what was given although it is for one trial alone."""
    if names := [name for name, value in values.items() if value is not None]:
        raise click.UsageError(f"{why}, and {names[0]} is for one trial; name one alone")


def _print_json(trial: Explained, name: str, why: bool) -> None:
    """Print the answer and each computation, or what the clauses of the answer rest on."""
    from dasklab.breakdown.show import documents
    from dasklab.breakdown.show.why import why as why_of

    if why:
        _echo_json(documents.of_clauses(why_of(trial.median_repeat, advice=trial.advice), name))
        return
    _echo_json(documents.of_trial(trial, name))
    for operation in trial.operations:
        _echo_json(documents.of_operation(trial, operation))


def _echo_json(document: object) -> None:
    from dasklab.model.forms.json_output import to_json

    echo(to_json(document, type(document), indent=None))


def _print_trial(trial: Explained, name: str, everything: bool) -> None:
    """Print the answer, advice and the causes of a trial or record, and draw its threads."""
    from dasklab.breakdown.show import wording

    _print_answer(trial, name)
    for piece in trial.advice:
        print_prose(f"- {piece}\n")
    _print_table(trial.summary, None if everything else wording.MOST_CAUSES)
    _print_operations(trial, everything)
    if everything:
        _print_details(trial)
    else:
        print_prose(
            "\nAll causes, operations, stages, rates and clocks: --all. What each clause rests on: --why."
        )
    _draw(trial)


def _print_answer(trial: Explained, name: str) -> None:
    """Print what is said of a trial before any table."""
    from dasklab.breakdown.show.answer import answer

    text = answer(trial)
    if text.gap:
        print_prose(f"{text.gap}\n")
    print_prose(f"{name}: {text.headline}\n")
    if text.others:
        print_prose("\n".join(map(str, text.others)) + "\n")


def _print_evidence(trial: Explained) -> None:
    """Print the sentences, and what each clause rests on; of several repeats that of middle length."""
    from dasklab.breakdown.show import why

    clauses = why.why(trial.median_repeat, advice=trial.advice)
    _print_answer(trial, trial.trial.name)
    if len(trial.timed) > 1:
        print_prose(
            f"This is the evidence of repeat {trial.median_repeat.number}, the one of middle length.\n"
        )
    print_table(why.HEAD, why.rows(clauses))


def _print_memory(trial: Explained) -> None:
    """Print what memory workers had while they ran each kind of task.

    Raises:
        LabError: it was not recorded, or no task ran at a heartbeat.
    """
    from dasklab.breakdown.show.memory import HEAD, memory_rows

    rows = list(memory_rows(trial.median_repeat, trial.facts.memory))
    if not rows:
        raise LabError(f"{trial.trial}: no worker reported its memory while it ran a task")
    print_table(HEAD, rows)


def _print_variation(trials: list[Explained], as_json: bool) -> None:
    """Print how three or more trials, or records, vary."""
    from dasklab.comparison import documents, variation
    from dasklab.comparison.causes import PathSeconds

    names = tuple(str(trial.trial) for trial in trials)
    varied = variation.Variation(names, tuple(PathSeconds.of(trial.summary) for trial in trials))
    if as_json:
        _echo_json(documents.of_variation(varied))
        return
    _print_gaps(trials)
    print_prose(f"{variation.sentence(varied)}\n")
    print_table(variation.HEAD, variation.rows(varied))
    echo()
    print_table(variation.RECORD_HEAD, variation.record_rows(varied))


def _print_gaps(trials: list[Explained]) -> None:
    for trial in trials:
        if trial.gap:
            print_prose(f"{trial.trial.name}: {trial.gap}")


def _print_trials(trials: list[Explained], as_json: bool) -> None:
    """Print what the second of two trials, or records, spends more than the first."""
    from dasklab.breakdown.show.documents import record_end
    from dasklab.comparison.records import WHOLE, compare_records

    old, new = trials
    if not as_json:
        _print_gaps(trials)
    causes = compare_records([old], [new]).causes[WHOLE]
    _print_causes(causes, new.trial.name, as_json, record_end(old), record_end(new))
    if not as_json:
        _draw(new, old)


def _explain_run(run: Run, captured: bool, as_json: bool) -> None:
    """Print the baseline's time breakdown, and what each other cell spends more."""
    from dasklab.breakdown.show import documents, wording
    from dasklab.breakdown.show.explain import explain_trials
    from dasklab.comparison.cells import RecordedCells, causes_of_cells
    from dasklab.results.statistics import reasons

    recorded = RecordedCells.of(run, explain_trials(run, captured, valid_only=True))
    cells = recorded.summaries
    if not cells:
        raise LabError(f"{run}: no Dask records were found for its baseline")
    base = next(iter(cells))
    if as_json:
        _echo_json(documents.of_baseline(cells[base], base))
    else:
        print_prose(f"{base}: {wording.paragraph(cells[base])}\n")
        _print_table(cells[base], wording.MOST_CAUSES)
    time = _time(run)
    for name, causes in causes_of_cells(recorded, time).items():
        _print_causes(causes, name, as_json)
        if not as_json and (verdict := reasons.verdict(time, name)):
            print_prose(verdict)
    if not as_json:
        _print_growth(cells)


def _explain_runs(old: Run, new: Run, captured: bool, as_json: bool) -> None:
    """Print what each cell of the second of two runs spends more than in the first."""
    from dasklab.breakdown.show.explain import explain_trials
    from dasklab.comparison.cells import RecordedCells
    from dasklab.comparison.runs import compare_runs

    before, after = (
        RecordedCells.of(run, explain_trials(run, captured, valid_only=True)) for run in (old, new)
    )
    comparison = compare_runs(old, new, anyway=True, recorded=(before, after))
    if not comparison.causes:
        raise LabError(f"{old} and {new} have no cell of which both hold Dask's records")
    for reason in comparison.unlike if not as_json else ():
        print_prose(f"Hardly comparable: {reason}")
    for name, causes in comparison.causes.items():
        _print_causes(causes, name, as_json)


def _print_table(summary: Summary, most: int | None) -> None:
    from dasklab.breakdown.show import wording

    print_table(wording.HEAD, wording.rows(summary, most))


def _print_operations(record: Explained, everything: bool) -> None:
    """Print the computations of a record, if it has several: a row for each, or for each line of code."""
    from dasklab.breakdown.show import operation_table

    if len(record.operations) > 1:
        echo()
        rows = operation_table.rows if everything else operation_table.largest_rows
        print_table(operation_table.HEAD, rows(record))


def _print_causes(
    causes: Causes,
    name: str,
    as_json: bool,
    before: RecordEnd | None = None,
    after: RecordEnd | None = None,
) -> None:
    from dasklab.comparison import documents, wording

    if as_json:
        _echo_json(documents.of_causes(causes, name, before, after))
        return
    print_prose(f"\n{name}: {wording.sentence(causes)}\n")
    print_table(wording.HEAD, wording.rows(causes.difference))


def _time(run: Run) -> Answer | None:
    """Return the run's answer for the time to compute; None if it did not measure that."""
    from dasklab.comparison.comparison import TIME
    from dasklab.results.statistics.answers import answers
    from dasklab.results.table import table

    return answers(table(run), run.metrics).get(TIME)


def _print_details(trial: Explained) -> None:
    """Print the stages of tasks and graphs, Dask's bandwidth estimates, waits for a CPU, and the clocks."""
    from dasklab.breakdown.show import wording

    echo()
    print_table(wording.STAGE_HEAD, wording.stage_rows(trial.timed))
    if trial.summary.graphs:
        echo()
        print_table(wording.GRAPH_HEAD, wording.graph_rows(trial.summary.graphs))
        print_prose(wording.graph_size(trial.summary.graphs))
    if rows := list(wording.bandwidth_rows(trial.bandwidths)):
        echo()
        print_table(wording.BANDWIDTH_HEAD, rows)
        print_prose(wording.bandwidth_sentence(trial.bandwidths))
    if starved := wording.starved(trial.cpu_wait_s, trial.summary.makespan_s):
        print_prose(f"\n{starved}")
    echo()
    print_table(wording.CLOCK_HEAD, wording.clock_rows(trial.clocks))


def _print_growth(cells: Mapping[str, Summary]) -> None:
    """Print how the stages of graphs grow, where cells have graphs of several sizes."""
    from dasklab.breakdown.answers.graphs import growth
    from dasklab.breakdown.show import wording
    from dasklab.model.experiments.trial import NULL_TRIAL

    graphs = {name: cell.graphs for name, cell in cells.items() if cell.graphs and name != NULL_TRIAL}
    if growth(list(graphs.values())):
        echo()
        print_table(wording.growth_head(graphs), wording.growth_rows(graphs))
        print_prose(wording.quadratic_growth(list(graphs.values())))


def _draw(trial: Explained, base: Explained | None = None) -> None:
    """Draw the repeat of middle length, below that of another trial on the same scale."""
    trials = [item for item in (base, trial) if item and item.timed]
    if not trials:
        return
    stem = trial.trial.computed_file("explain-capture" if trial.captured else "explain")
    if base:  # a level may have a dot in it, which does not start a suffix
        stem = stem.with_name(f"{stem.name}-beside-{base.trial.name.replace('.', '_')}")

    def draw() -> Figure:
        from dasklab.breakdown.show import pictures

        if base:
            return pictures.beside({item.trial.name: item.median_repeat for item in trials})
        return pictures.over_time(trial.trial.name, trial.median_repeat, trial.operations, trial.facts.memory)

    save_picture("Threads over time", draw, stem)


def _write_trace(trial: Explained, path: Path) -> None:
    from dasklab.breakdown.show.trace.perfetto import write

    write(trial, path)
    echo(f"For ui.perfetto.dev: {display_path(path)}")


def _write_profile(trial: Explained, path: Path) -> None:
    from dasklab import atomic, records
    from dasklab.records.speedscope import speedscope

    stacks = records.tables_of(trial.trial, trial.captured)["profiles"]
    timed = stacks[stacks.repeat.isin([repeat.number for repeat in trial.timed])]
    if timed.empty:
        setting = "dask: {distributed: {worker: {profile: {enabled: true}}}}"
        raise LabError(f"{trial.trial}: Dask's profile was off", f"in the experiment: {setting}")
    atomic.write_text(path, json.dumps(speedscope(timed, trial.trial.name)))
    echo(f"For speedscope.app: {display_path(path)}")

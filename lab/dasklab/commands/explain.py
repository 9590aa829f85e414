"""``dasklab explain``: where the time of runs went. What is behind it is imported on use: it needs pandas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.errors import LabError
from dasklab.path_types import OutputFile, UserPath
from dasklab.terminal import print_table

if TYPE_CHECKING:
    from dasklab.breakdown.explain import Explained
    from dasklab.breakdown.summary import Difference, Summary

FOLDER = UserPath(exists=True, file_okay=False)


@click.command()
@click.argument("first", metavar="TRIAL|RUN", type=FOLDER)
@click.argument("second", metavar="[TRIAL]", required=False, type=FOLDER)
@click.option("--captured", is_flag=True, help="The runs that were captured, instead of the timed ones.")
@click.option("--trace", type=OutputFile(), help="Write TRIAL as a trace for ui.perfetto.dev.")
@click.option("--profile", type=OutputFile(), help="Write Dask's profile of TRIAL for speedscope.")
@click.option("--json", "as_json", is_flag=True, help="For programs: a line per account.")
def explain(
    first: Path, second: Path | None, captured: bool, trace: Path | None, profile: Path | None, as_json: bool
) -> None:
    """Say where the time went, every second of every worker thread.

    \b
    dasklab explain TRIAL          its account: words, tables, clocks; a picture into its folder
    dasklab explain TRIAL TRIAL    what the second spends more than the first, and where
    dasklab explain RUN            the baseline's account, and what each other cell spends more
    """
    from dasklab.breakdown import explain

    if explain.is_run(first):
        _explain_run(first, captured, as_json)
        return
    one = explain.explain(first, captured)
    if second is not None:
        other = explain.explain(second, captured)
        _compare(one.summary, other.summary, second.name, as_json)
        if not as_json:
            _draw(other, one)
        return
    _tell(one.summary, first.name, as_json)
    if not as_json:
        _more(one)
        _draw(one)
    if trace:
        _trace(one, trace)
    if profile:
        _profile(one, profile)


def _explain_run(run: Path, captured: bool, as_json: bool) -> None:
    """The baseline's account, and of each other cell what it spends more and whether its time differs."""
    from dasklab.breakdown import explain

    found = explain.cells(run, captured)
    if not found:
        raise LabError(f"{run}: of its baseline nothing was recorded inside Dask")
    base, *others = found
    _tell(found[base], base, as_json)
    verdicts = {} if as_json else _verdicts(run, others)
    for name in others:
        _compare(found[base], found[name], name, as_json)
        if sentence := verdicts.get(name):
            click.echo(sentence)
    if not as_json:
        _growth(found)


def _tell(found: Summary, name: str, as_json: bool) -> None:
    from dasklab.breakdown import wording

    if as_json:
        _print_json(found, name, asdict(found.replayed) if found.replayed else {})
        return
    click.echo(f"{name}: {wording.paragraph(found)}\n")
    print_table(wording.HEAD, wording.rows(found))


def _compare(old: Summary, new: Summary, name: str, as_json: bool) -> None:
    from dasklab.breakdown import wording
    from dasklab.breakdown.summary import Difference

    found = Difference(old, new)
    if as_json:
        _print_json(found, name)
        return
    click.echo(f"\n{name}: {wording.difference(found)}\n")
    print_table(wording.DIFFERENCE_HEAD, wording.difference_rows(found))


def _verdicts(run: Path, cells: list[str]) -> dict[str, str]:
    """Whether each cell's time differs from the baseline's by more than chance makes, in a sentence."""
    from dasklab.results import load
    from dasklab.results.statistics import reasons
    from dasklab.results.statistics.measures import answers
    from dasklab.results.storage import store

    metrics = list(store.read_run(run).experiment["metrics"])
    time = answers(load(run), metrics).get("compute_s")
    sentences = {name: reasons.verdict(time, name) for name in cells}
    return {name: sentence for name, sentence in sentences.items() if sentence}


def _more(found: Explained) -> None:
    """A task's way in stages, Dask's belief of the links, whether there was CPU enough, and the clocks."""
    from dasklab.breakdown import wording

    click.echo()
    print_table(wording.STAGE_HEAD, wording.stage_rows(found.timed))
    if found.summary.graphs:
        click.echo()
        print_table(wording.GRAPH_HEAD, wording.graph_rows(found.summary.graphs))
        click.echo(wording.graph(found.summary.graphs))
    click.echo()
    print_table(wording.BELIEF_HEAD, wording.belief_rows(found.beliefs))
    click.echo(wording.belief(found.beliefs))
    if starved := wording.starved(found.waiting_s, found.summary.makespan_s):
        click.echo(f"\n{starved}")
    click.echo()
    print_table(wording.CLOCK_HEAD, wording.clock_rows(found.clocks))


def _growth(found: Mapping[str, Summary]) -> None:
    """How the stages of graphs grow, where cells have graphs of several sizes."""
    from dasklab.breakdown import wording
    from dasklab.breakdown.graphs import growth

    ways = {name: one.graphs for name, one in found.items() if one.graphs and name != "null trial"}
    if growth(list(ways.values())):
        click.echo()
        print_table(wording.growth_head(ways), wording.growth_rows(ways))
        click.echo(wording.square(list(ways.values())))


def _draw(found: Explained, beside: Explained | None = None) -> None:
    """The picture of the run of middle length, below that of another trial on the same scale."""
    from dasklab.breakdown import pictures
    from dasklab.plotting import save

    shown = [one for one in (beside, found) if one and one.timed]
    if shown:
        stem = found.directory / ("explain-capture" if found.captured else "explain")
        if beside:  # a level may have a dot in it, which is no file's ending
            stem = stem.with_name(f"{stem.name}-beside-{beside.directory.name.replace('.', '_')}")
        save(pictures.threads({one.directory.name: one.usual for one in shown}), stem)
        click.echo(f"\nThreads over time: {stem}.svg")


def _trace(found: Explained, path: Path) -> None:
    from dasklab.breakdown.trace import write

    write(found, path)
    click.echo(f"For ui.perfetto.dev: {path}")


def _profile(found: Explained, path: Path) -> None:
    from dasklab import atomic, record
    from dasklab.record.speedscope import speedscope

    every = record.load(found.directory, found.captured)["profiles"]
    counted = every[every.run.isin([run.number for run in found.timed])]
    if counted.empty:
        setting = "dask: {distributed: {worker: {profile: {enabled: true}}}}"
        raise LabError(f"{found.directory}: Dask's profile was off", f"in the experiment: {setting}")
    atomic.write_text(path, json.dumps(speedscope(counted, found.directory.name)))
    click.echo(f"For speedscope.app: {path}")


def _print_json(found: Summary | Difference, name: str, more: Mapping[str, float] = {}) -> None:
    def rows(cells: Mapping[tuple[str, str], float]) -> list[tuple[str, str, float]]:
        return [(cause, place, seconds) for (cause, place), seconds in cells.items()]

    account = {"account": rows(found.account), "critical_path": rows(found.path)}
    said = {"name": name, "makespan_s": found.makespan_s, **account, "culprits": found.ranked()}
    click.echo(json.dumps(said | dict(more)))

"""The end of a run: its exit status, and what to do about failed trials."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from dasklab.console.trials.exit_status import ExitStatus
from dasklab.model.files import Attempt, Failed, Result
from dasklab.results.storage import store
from dasklab.running.ansible_lab import LOG
from dasklab.terminal import counted


def exit_status(run: Path) -> ExitStatus:
    """Return the exit status for a run whose trials are all finished."""
    statuses = {result.status for result in _results(run).values()}
    if "failed" in statuses:
        return ExitStatus.FAILED
    return ExitStatus.INVALID if "invalid" in statuses else ExitStatus.OK


def explain_failures(run: Path) -> None:
    """Print the causes of failed trials with their logs, and the command to run next."""
    results = _results(run)
    failed = [trial for trial, result in results.items() if result.status == "failed"]
    if not failed:
        return
    click.secho(f"\n{len(failed)} of {counted(len(results), 'trial')} failed.", fg="red", err=True)
    causes = Counter(results[trial].reasons for trial in failed)
    for reasons, count in causes.items():
        trial = next(trial for trial in failed if results[trial].reasons == reasons)
        click.echo(f"  {trial.name}{f' and {count - 1} more' if count > 1 else ''}:", err=True)
        for reason in reasons:
            click.echo(f"    {reason}", err=True)
        if (trial / LOG).exists():
            click.echo(f"    Log: {trial / LOG}", err=True)
    measured = store.read_run(run).setup.simulated is None
    repair = ["dasklab up"] if measured and any(map(_is_lab_broken, failed)) else []
    commands = " && ".join([*repair, f"dasklab run {run}"])
    click.echo(f"  To run the failed trials again: {commands}", err=True)


def _is_lab_broken(trial: Path) -> bool:
    """Return whether the playbook failed before it could record which task failed on which machine."""
    return store.need(Attempt, trial).exit_status != 0 and not (trial / Failed.FILE).exists()


def _results(run: Path) -> dict[Path, Result]:
    return {trial: store.need(Result, trial) for trial in store.finished(run)}

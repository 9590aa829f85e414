"""How a run ended: its exit status, and what to do about trials that failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from dasklab.commands.exits import Exit
from dasklab.model.files import Attempt, Failed, Result
from dasklab.results.storage import store
from dasklab.running.ansible_lab import LOG


def exit_status(run: Path) -> Exit:
    """Return the exit status of a run that has come to its end."""
    states = {result.status for result in _results(run).values()}
    return Exit.FAILED if "failed" in states else Exit.INVALID if "invalid" in states else Exit.OK


def explain_failures(run: Path) -> None:
    """Print of each failed trial the cause and Ansible's log, and which command to run next."""
    results = _results(run)
    failed = [trial for trial, result in results.items() if result.status == "failed"]
    if not failed:
        return
    click.secho(f"\n{len(failed)} of {len(results)} trials failed.", fg="red", err=True)
    causes = Counter(results[trial].reasons for trial in failed)
    for reasons, count in causes.items():
        trial = next(trial for trial in failed if results[trial].reasons == reasons)
        click.echo(f"  {trial.name}{f' and {count - 1} more' if count > 1 else ''}:", err=True)
        for reason in reasons:
            click.echo(f"    {reason}", err=True)
        if (trial / LOG).exists():
            click.echo(f"    Log: {trial / LOG}", err=True)
    measured = store.read_run(run).setup.simulated is None
    repair = ["dasklab up"] if measured and any(map(_lab_broken, failed)) else []
    commands = " && ".join([*repair, f"dasklab run {run}"])
    click.echo(f"  To run the failed trials again: {commands}", err=True)


def _lab_broken(trial: Path) -> bool:
    """Whether the playbook did not even get far enough to write down what failed on the machines."""
    return store.need(Attempt, trial).exit_status != 0 and not (trial / Failed.FILE).exists()


def _results(run: Path) -> dict[Path, Result]:
    return {trial: store.need(Result, trial) for trial in store.finished(run)}

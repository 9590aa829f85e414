"""The end of a run: its exit status, and what to do about failed trials."""

from __future__ import annotations

from collections import Counter

from dasklab.console.trials.exit_status import ExitStatus
from dasklab.model.files import Failed
from dasklab.results.run import Run, Trial
from dasklab.running.playbooks.ansible_lab import LOG
from dasklab.terminal import counted, echo


def exit_status(run: Run) -> ExitStatus:
    """Return the exit status for a run whose trials are all finished."""
    statuses = {trial.result.status for trial in run.trials}
    if "failed" in statuses:
        return ExitStatus.FAILED
    return ExitStatus.INVALID if "invalid" in statuses else ExitStatus.OK


def explain_failures(run: Run) -> None:
    """Print the causes of failed trials with their logs, and the command to run next."""
    failed = [trial for trial in run.trials if trial.result.status == "failed"]
    if not failed:
        return
    echo(f"\n{len(failed)} of {counted(len(run.trials), 'trial')} failed.", fg="red", err=True)
    causes = Counter(trial.result.reasons for trial in failed)
    for reasons, count in causes.items():
        trial = next(trial for trial in failed if trial.result.reasons == reasons)
        echo(f"  {trial.name}{f' and {count - 1} more' if count > 1 else ''}:", err=True)
        for reason in reasons:
            echo(f"    {reason}", err=True)
        if (log := trial.folder / LOG).exists():
            echo(f"    Log: {log}", err=True)
    repair = ["dasklab up"] if not run.simulated and any(map(_is_lab_broken, failed)) else []
    commands = " && ".join([*repair, f"dasklab run {run}"])
    echo(f"  To run the failed trials again: {commands}", err=True)


def _is_lab_broken(trial: Trial) -> bool:
    """Return whether the playbook failed before it could record which task failed on which machine."""
    return trial.attempt.exit_status != 0 and not trial.has(Failed)

"""Was the cluster as asked? What its processes say of themselves, against what the trial asks; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dasklab.model.dask_settings import flatten
from dasklab.model.engines import spark_text
from dasklab.model.experiment import merge
from dasklab.model.files import Timings, WorkerProcess
from dasklab.model.trial import Trial
from dasklab.model.variants import Layout

OWN = "distributed.scheduler"  # the module in which Dask's scheduler chooses a worker


def differences(trial: Trial, timings: Timings) -> Iterator[str]:
    """Every way in which the cluster is another than asked, in words."""
    yield from _engine(trial, timings)
    yield from _settings(trial, timings)
    yield from _packages(trial, timings)
    yield from _seat(trial, timings)
    yield from _workers(trial, timings)
    yield from _layout(trial, timings)


def _engine(trial: Trial, timings: Timings) -> Iterator[str]:
    """Who computed, and Spark's settings; executors run with what the driver tells them."""
    found = "spark" if "spark" in timings.versions else "dask"
    if found != trial.engine:
        yield f"engine {trial.engine} was asked, {found} computed"
    for name, value in trial.spark.items():
        runs = timings.config.get("client", {}).get(name)
        if runs != spark_text(value):
            yield f"client: {name} {spark_text(value)} was asked, it runs with {runs}"


def _settings(trial: Trial, timings: Timings) -> Iterator[str]:
    """Dask's settings; those of its seat are the scheduler's alone."""
    seated = dict(flatten(merge(trial.dask, trial.resolved_scheduler.settings)))
    shared = dict(flatten(trial.dask))
    for name, asked in seated.items():
        if not timings.config:
            yield f"dask {name}: {asked!r} was asked, nobody said what they run with"
    for process, found in timings.config.items():
        for name, asked in (seated if process == "scheduler" else shared).items():
            if found.get(name) != asked:
                yield f"{process}: dask {name}: {asked!r} was asked, it runs with {found.get(name)!r}"


def _packages(trial: Trial, timings: Timings) -> Iterator[str]:
    """Versions, where the trial names any."""
    wanted = {**trial.packages, **trial.environment}
    if wanted and not timings.packages:
        told = ", ".join(f"{name} {version}" for name, version in wanted.items())
        yield f"{told} was asked, nobody said what runs"
    for process, found in timings.packages.items():
        for name, asked in wanted.items():
            if found.get(name) != asked:
                yield f"{process}: {name} {asked} was asked, it runs with {found.get(name)}"


def _seat(trial: Trial, timings: Timings) -> Iterator[str]:
    """What runs as the scheduler; where the trial names nothing the inventory's may be anything."""
    seat, found = trial.resolved_scheduler, timings.cluster.scheduler
    if not (seat.variant or seat.command):
        return
    asked = seat.variant or seat.command
    if found is None:
        yield f"scheduler: {asked} was asked, nobody said what runs"
        return
    if seat.command and found.command != seat.command:
        yield f"scheduler: {asked} was asked, it was started as {found.command or 'something else'}"
    if seat.variant:
        placement = f"dasklab_{seat.preload}" if seat.preload else OWN
        settings = dict(flatten(merge(trial.dask, seat.settings)))
        loop = "uvloop" if settings.get("distributed.admin.event-loop") == "uvloop" else "asyncio"
        if found.placement != placement:
            yield f"scheduler: {asked} was asked, workers are chosen by {found.placement or 'something else'}"
        if found.loop != loop:
            yield f"scheduler: {asked} was asked, its event loop is {found.loop}"


def _workers(trial: Trial, timings: Timings) -> Iterator[str]:
    """Zero workers where they were asked, and nowhere else."""
    zero = trial.worker.variant == "zero"
    found = timings.cluster.processes
    if zero and not found:
        yield "zero workers were asked, nobody said what runs"
    if wrong := sorted(name for name, process in found.items() if process.zero != zero):
        asked, runs = ("zero workers", "Dask's") if zero else ("Dask's workers", "zero workers")
        yield f"{asked} were asked, {runs} run: {', '.join(wrong)}"


def _layout(trial: Trial, timings: Timings) -> Iterator[str]:
    """Each host has as many processes as asked, and each of them as many threads."""
    if trial.layout is None:
        return
    zero = trial.worker.variant == "zero"  # these share a process
    asked, hosts = Layout.parse(trial.layout), defaultdict[str, list[WorkerProcess]](list)
    for process in timings.cluster.processes.values():
        hosts[process.host].append(process)
    if not hosts:
        yield f"layout {trial.layout}: nobody said what runs"
    for host, found in sorted(hosts.items()):
        processes = len(found) if zero else len({process.pid for process in found})
        if (processes, len(found)) != (asked.processes, asked.processes):
            yield f"{host}: {asked.processes} worker processes were asked, it has {processes}"
        if wrong := sorted({process.threads for process in found} - {asked.threads}):
            told = ", ".join(map(str, wrong))
            yield f"{host}: workers of {asked.threads} threads were asked, it has some of {told}"

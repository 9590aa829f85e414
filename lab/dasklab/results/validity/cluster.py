"""Compare the running cluster, as its processes describe it, with what the trial requests; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dasklab.model.experiments.experiment import merge
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Timings, WorkerProcess
from dasklab.model.settings.dask_settings import flatten
from dasklab.model.settings.variants import Layout

DASK_PLACEMENT = "distributed.scheduler"  # the module in which Dask's own scheduler chooses a worker


def differences(trial: RequestedTrial, timings: Timings) -> Iterator[str]:
    """Yield a line for each property in which the cluster is not as requested."""
    yield from _engine(trial, timings)
    yield from _settings(trial, timings)
    yield from _packages(trial, timings)
    yield from _scheduler(trial, timings)
    yield from _workers(trial, timings)
    yield from _layout(trial, timings)


def _engine(trial: RequestedTrial, timings: Timings) -> Iterator[str]:
    """Compare the engine, and its settings if it is Spark."""
    engine = "spark" if "spark" in timings.versions else "dask"
    if engine != trial.engine:
        yield f"requested engine {trial.engine}, but {engine} computed"
    if trial.spark:
        yield from _spark_settings(trial, timings)


def _spark_settings(trial: RequestedTrial, timings: Timings) -> Iterator[str]:
    """Compare Spark's settings. Executors run with the settings of the driver."""
    from dasklab.spark.settings import spark_text

    for name, requested in trial.spark.items():
        value = timings.config.get("client", {}).get(name)
        if value != spark_text(requested):
            yield f"client: requested {name} {spark_text(requested)}, it runs with {value}"


def _settings(trial: RequestedTrial, timings: Timings) -> Iterator[str]:
    """Compare Dask's settings. Those of the scheduler variant are for the scheduler alone."""
    of_scheduler = dict(flatten(merge(trial.dask, trial.resolved_scheduler.settings)))
    shared = dict(flatten(trial.dask))
    for name, requested in of_scheduler.items():
        if not timings.config:
            yield f"requested dask {name}: {requested!r}, but settings were not read back"
    for process, config in timings.config.items():
        for name, requested in (of_scheduler if process == "scheduler" else shared).items():
            if config.get(name) != requested:
                yield f"{process}: requested dask {name}: {requested!r}, it runs with {config.get(name)!r}"


def _packages(trial: RequestedTrial, timings: Timings) -> Iterator[str]:
    """Compare the versions that the trial requests."""
    requested = {**trial.packages, **trial.environment}
    if requested and not timings.packages:
        names = ", ".join(f"{name} {version}" for name, version in requested.items())
        yield f"requested {names}, but versions were not read back"
    for process, packages in timings.packages.items():
        for name, version in requested.items():
            if packages.get(name) != version:
                yield f"{process}: requested {name} {version}, it runs with {packages.get(name)}"


def _scheduler(trial: RequestedTrial, timings: Timings) -> Iterator[str]:
    """Compare the scheduler. If the trial requests none, the inventory's may be anything."""
    requested, running = trial.resolved_scheduler, timings.cluster.scheduler
    name = requested.variant or requested.command
    if not name:
        return
    if running is None:
        yield f"scheduler: requested {name}, but it was not read back"
        return
    if requested.command and running.command != requested.command:
        yield f"scheduler: requested {name}, it was started as {running.command or 'something else'}"
    if requested.variant:
        placement = f"dasklab_{requested.preload}" if requested.preload else DASK_PLACEMENT
        settings = dict(flatten(merge(trial.dask, requested.settings)))
        loop = "uvloop" if settings.get("distributed.admin.event-loop") == "uvloop" else "asyncio"
        if running.placement != placement:
            chooser = running.placement or "something else"
            yield f"scheduler: requested {name}, but {chooser} chooses the workers"
        if running.loop != loop:
            yield f"scheduler: requested {name}, its event loop is {running.loop}"


def _workers(trial: RequestedTrial, timings: Timings) -> Iterator[str]:
    """Zero workers run if they were requested, and only then."""
    zero = trial.worker.variant == "zero"
    processes = timings.cluster.processes
    if zero and not processes:
        yield "requested zero workers, but workers were not read back"
    if others := sorted(name for name, process in processes.items() if process.zero != zero):
        requested, running = ("zero workers", "Dask's") if zero else ("Dask's workers", "zero workers")
        yield f"requested {requested}, {running} run: {', '.join(others)}"


def _layout(trial: RequestedTrial, timings: Timings) -> Iterator[str]:
    """Each host has the requested number of processes, and each of these the number of threads."""
    if trial.layout is None:
        return
    zero = trial.worker.variant == "zero"  # these share a process
    requested, hosts = Layout.parse(trial.layout), defaultdict[str, list[WorkerProcess]](list)
    for process in timings.cluster.processes.values():
        hosts[process.host].append(process)
    if not hosts:
        yield f"requested layout {trial.layout}, but workers were not read back"
    for host, workers in sorted(hosts.items()):
        processes = len(workers) if zero else len({worker.pid for worker in workers})
        if (processes, len(workers)) != (requested.processes, requested.processes):
            yield f"{host}: requested {requested.processes} worker processes, it has {processes}"
        if others := sorted({worker.threads for worker in workers} - {requested.threads}):
            threads = ", ".join(map(str, others))
            yield f"{host}: requested {requested.threads} threads per worker, some workers have {threads}"

"""One simulation, in the process that calls it. Nothing of Dask may be imported there before."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasklab.errors import LabError
from dasklab.model.files import Outcome, SimulatedRun
from dasklab.paths import WORKLOADS
from dasklab.sim import build
from dasklab.sim.kernel import HungError, Kernel, virtual_time
from dasklab.sim.scenario import Scenario

if TYPE_CHECKING:
    from dasklab.sim.cluster.cluster import Cluster
    from dasklab.sim.faults import Faults


def simulate(scenario: Scenario) -> Outcome:
    """Run a scenario.

    Raises:
        LabError: it cannot be simulated, or not in this process.
    """
    if "distributed" in sys.modules:
        raise LabError(
            "a simulation needs a process of its own, Dask is imported here: python -m dasklab.sim"
        )
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        raise LabError("a simulation needs PYTHONHASHSEED set: the order of sets depends on it")
    started = time.process_time()
    kernel = Kernel(scenario.seed, scenario.limit_s)
    unknown: dict[str, None] = {}
    sys.modules["scipy"] = None  # type: ignore[assignment] # hosts have none; dask.array would import half of it
    gc.disable()  # when it runs depends on the process, and it ends what Dask still waits for
    with virtual_time(kernel, scenario.seed):
        from dasklab.sim.cluster.cluster import Machines, running
        from dasklab.sim.faults import Faults

        machines = Machines(
            scenario.worker_names,
            scenario.threads,
            build.hosts(scenario, kernel),
            scenario.costs,
            scenario.design == "light",
            scenario.shuffled_bytes,
            build.late_s(scenario),
            scenario.handoff_s,
        )
        choose = build.draw(scenario, unknown)
        with running(kernel, build.network(scenario, kernel), machines, choose, scenario.dask) as cluster:
            faults = Faults(cluster, scenario.faults)
            job = _job(scenario, cluster)
            computed, busy_s = cluster.computed, cluster.loops["scheduler"].busy_s
            handed_s = cluster.handed_s
            runs: list[SimulatedRun] = []
            failed, hung = _attempt(scenario, cluster, job, faults, runs)
            workers = len(cluster.scheduler.workers)
            # that connections break is what was asked for
            if errors := cluster.errors(expected=(OSError,) if scenario.faults else ()):
                raise LabError(f"the simulated cluster failed: {errors[0]}")
    return Outcome(
        seed=scenario.seed,
        runs=tuple(runs),
        tasks=job.tasks,
        digest=kernel.digest(),
        messages=cluster.world.network.messages,
        ops=cluster.world.ops,
        unknown=tuple(unknown),
        computed=cluster.computed - computed,
        handoff_s=(cluster.handed_s - handed_s) / max(1, cluster.computed - computed),
        scheduler_busy_s=cluster.loops["scheduler"].busy_s - busy_s,
        cpu_s=time.process_time() - started,
        memory_mb=_most_memory_mb(),
        failed=failed,
        hung=hung,
        faults=faults.seen,
        workers=workers,
    )


def _most_memory_mb() -> float:
    """This program's own: getrusage would tell that of the larger one that started it."""
    said = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(said[1]) / 1024 if said else 0.0


def _attempt(
    scenario: Scenario, cluster: Cluster, job: Any, faults: Faults, runs: list[SimulatedRun]
) -> tuple[str | None, bool]:
    """Do the runs; why they did not get through, if they did not, and whether they hung.

    Without faults that is a mistake.

    Raises:
        LabError: nothing was to go wrong.
    """
    try:
        _run(scenario, cluster, job, faults, runs)
    except HungError:
        limit = f"{scenario.limit_s:g} s of virtual time"
        failed, hung = f"it hung, it was not done within {limit}: {_left(cluster)}", True
    except Exception as error:  # noqa: BLE001 - whatever Dask gives up with is a result
        [told, *_] = [*str(error).splitlines(), ""]
        failed, hung = f"{type(error).__name__}: {told}", False
    else:
        return None, False
    if not scenario.faults:
        raise LabError(failed)
    return failed, hung


def _left(cluster: Cluster) -> str:
    """What the scheduler still has to do, and with how many workers."""
    states = Counter(task.state for task in cluster.scheduler.tasks.values())
    tasks = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"{len(cluster.scheduler.workers)} workers; tasks: {tasks or 'none'}"


def _run(scenario: Scenario, cluster: Cluster, job: Any, faults: Faults, runs: list[SimulatedRun]) -> None:
    cluster.world.ops.clear()
    for number in range(scenario.warmups + scenario.runs):
        if number == scenario.warmups:
            faults.arm()
        start, before = cluster.kernel.now, cluster.sent_bytes()
        cluster.kernel.sleep(scenario.driver_s)
        job.run(number)
        runs.append(
            SimulatedRun(
                warmup=number < scenario.warmups,
                duration_s=cluster.kernel.now - start,
                transfer_bytes=sum(
                    sent - before.get(worker, 0) for worker, sent in cluster.sent_bytes().items()
                ),
            )
        )
        gc.collect()


def _job(scenario: Scenario, cluster: Cluster) -> Any:
    """The project's own workload, prepared for this cluster."""
    import dask.array

    dask.array.random.seed(scenario.seed)
    sys.path.insert(0, str(WORKLOADS))
    module = importlib.import_module(scenario.workload.name)
    if "dask.dataframe" in inspect.getsource(module):
        _look_at_real_frames()
    defaults = importlib.import_module("_harness").parameters(module.prepare)
    params = {key: type(defaults[key])(value) for key, value in scenario.workload.params.items()}
    return module.prepare(cluster.client, **params)


def _look_at_real_frames() -> None:
    """``from_map`` computes a first piece to see its columns: here and really, not on the cluster."""
    import dask.dataframe

    from_map = dask.dataframe.from_map

    def locally(*args: Any, **kwargs: Any) -> Any:
        with dask.config.set(scheduler="sync"):
            return from_map(*args, **kwargs)  # type: ignore[no-untyped-call]

    dask.dataframe.from_map = locally

"""Run one simulation in the calling process, which must not have imported Dask before."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import re
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dasklab.errors import LabError
from dasklab.model.files import Outcome, SimulatedRepeat
from dasklab.model.settings.packages import version_key
from dasklab.model.settings.trial_settings import Workload
from dasklab.paths import WORKLOADS
from dasklab.sim import build
from dasklab.sim.kernel import HungError, Kernel, virtual_time
from dasklab.sim.program import Program
from dasklab.sim.scenario import Scenario

if TYPE_CHECKING:
    from dasklab.sim.cluster.cluster import SimCluster
    from dasklab.sim.faults import FaultInjector

OLDEST_DASK = "2025.4"  # older ones have another worker and another form of tasks


def simulate(scenario: Scenario) -> Outcome:
    """Run a scenario and return its outcome.

    Raises:
        LabError: the scenario cannot be simulated, or this process cannot run a simulation.
    """
    _check_process()
    scenario.check()
    started = time.process_time()
    kernel = Kernel(scenario.seed, scenario.limit_s)
    unknown: dict[str, None] = {}
    sys.modules["scipy"] = None  # type: ignore[assignment] # hosts have none, and its import is slow
    # The collector would run at other moments in each process, and end coroutines that Dask still waits for.
    gc.disable()
    with virtual_time(kernel, scenario.seed):
        from dasklab.sim.cluster.cluster import ClusterSpec, running_cluster
        from dasklab.sim.faults import FaultInjector

        spec = ClusterSpec(
            workers=scenario.worker_names,
            threads=scenario.threads,
            hosts=build.hosts(scenario, kernel),
            costs=scenario.costs,
            shuffled_bytes=scenario.shuffled_bytes,
            late_s=build.late_s(scenario),
            handoff_s=scenario.handoff_s,
        )
        draw = build.draw(scenario, unknown)
        with running_cluster(kernel, build.network(scenario, kernel), spec, draw, scenario.dask) as cluster:
            faults = FaultInjector(cluster, scenario.faults)
            job = _prepare(scenario, cluster)
            computed, busy_s = cluster.computed, cluster.loops["scheduler"].busy_s
            handoff_total_s = cluster.handoff_total_s
            repeats: list[SimulatedRepeat] = []
            failure, hung = _try_repeats(scenario, cluster, job, faults, repeats)
            workers = len(cluster.scheduler.workers)
            # A fault breaks connections: that is what was requested
            if errors := cluster.errors(expected=(OSError,) if scenario.faults else ()):
                raise LabError(f"the simulated cluster failed: {errors[0]}")
    computed_in_repeats = cluster.computed - computed
    return Outcome(
        seed=scenario.seed,
        repeats=tuple(repeats),
        tasks=job.tasks,
        digest=kernel.digest(),
        messages=cluster.fabric.network.messages,
        ops=cluster.fabric.ops,
        unknown=tuple(unknown),
        computed=computed_in_repeats,
        handoff_s=(cluster.handoff_total_s - handoff_total_s) / max(1, computed_in_repeats),
        scheduler_busy_s=cluster.loops["scheduler"].busy_s - busy_s,
        cpu_s=time.process_time() - started,
        memory_mb=_peak_memory_mb(),
        failed=failure,
        hung=hung,
        faults=faults.observed,
        workers=workers,
    )


def _check_process() -> None:
    if "distributed" in sys.modules:
        raise LabError(
            "a simulation needs a process of its own, Dask is imported here: python -m dasklab.sim"
        )
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        raise LabError("a simulation needs PYTHONHASHSEED set: the order of sets depends on it")
    installed = version("distributed")
    if version_key(installed) < version_key(OLDEST_DASK):
        raise LabError(f"predictions need Dask {OLDEST_DASK} or later; installed is {installed}")


def _peak_memory_mb() -> float:
    """Return the peak memory of this program.

    getrusage would also count the process that started this program, before its exec.
    """
    peak = re.search(
        r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE
    )
    return int(peak[1]) / 1024 if peak else 0.0


def _prepare(scenario: Scenario, cluster: SimCluster) -> Any:
    """Import the workload, or take the program, and prepare it on this cluster."""
    if isinstance(scenario.workload, Program):
        from dasklab.sim.cluster.replay import ProgramReplay

        return ProgramReplay(cluster, scenario.workload)
    import dask.array

    dask.array.random.seed(scenario.seed)
    sys.path.insert(0, str(WORKLOADS))
    module = _module(scenario.workload)
    if "dask.dataframe" in (scenario.workload.source or inspect.getsource(module)):
        _compute_first_partition_locally()
    defaults = importlib.import_module("_harness").parameters(module.prepare)
    params = {key: type(defaults[key])(value) for key, value in scenario.workload.params.items()}
    return module.prepare(cluster.client, **params)


def _module(workload: Workload) -> ModuleType:
    """Import a workload of the project, or execute the source of a user's own."""
    if workload.source is None:
        return importlib.import_module(workload.name)
    module = sys.modules[workload.name] = ModuleType(workload.name)
    exec(compile(workload.source, f"{workload.name}.py", "exec"), module.__dict__)
    return module


def _compute_first_partition_locally() -> None:
    """Patch ``from_map`` so that it computes its first partition in this process.

    It learns the columns from that partition, so the partition must have real data.
    """
    import dask.dataframe

    from_map = dask.dataframe.from_map

    def locally(*args: Any, **kwargs: Any) -> Any:
        with dask.config.set(scheduler="sync"):
            return from_map(*args, **kwargs)  # type: ignore[no-untyped-call]

    dask.dataframe.from_map = locally


def _try_repeats(
    scenario: Scenario, cluster: SimCluster, job: Any, faults: FaultInjector, repeats: list[SimulatedRepeat]
) -> tuple[str | None, bool]:
    """Execute the repeats. If the scenario has faults, a failed repeat is a result, not an error.

    Returns:
        Why the repeats did not complete (None if they did), and whether they hung.

    Raises:
        LabError: the repeats did not complete although the scenario has no faults.
    """
    try:
        _execute_repeats(scenario, cluster, job, faults, repeats)
    except HungError:
        limit = f"{scenario.limit_s:g} s of virtual time"
        failure, hung = f"it hung, it was not done within {limit}: {_unfinished(cluster)}", True
    except Exception as error:  # noqa: BLE001 - whatever Dask raises after a fault is a result
        [message, *_] = [*str(error).splitlines(), ""]
        failure, hung = f"{type(error).__name__}: {message}", False
    else:
        return None, False
    if not scenario.faults:
        raise LabError(failure)
    return failure, hung


def _unfinished(cluster: SimCluster) -> str:
    """Describe what the scheduler still has to do, and with how many workers."""
    states = Counter(task.state for task in cluster.scheduler.tasks.values())
    tasks = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"{len(cluster.scheduler.workers)} workers; tasks: {tasks or 'none'}"


def _execute_repeats(
    scenario: Scenario, cluster: SimCluster, job: Any, faults: FaultInjector, repeats: list[SimulatedRepeat]
) -> None:
    """Execute warm-ups and timed repeats, and append what each took to ``repeats``."""
    cluster.fabric.ops.clear()
    for number in range(scenario.warmups + scenario.repeats):
        if number == scenario.warmups:
            faults.arm()
        start, sent_before = cluster.kernel.now, cluster.sent_bytes()
        cluster.kernel.sleep(scenario.driver_s)
        job.run(number)
        sent_after = cluster.sent_bytes()
        repeats.append(
            SimulatedRepeat(
                warmup=number < scenario.warmups,
                duration_s=cluster.kernel.now - start,
                transfer_bytes=sum(
                    nbytes - sent_before.get(worker, 0) for worker, nbytes in sent_after.items()
                ),
            )
        )
        gc.collect()

"""A task that is not run: the start and stop that Dask receives."""

from __future__ import annotations

import pytest
from dask._task_spec import Task
from dasklab.sim.cluster.comm import Fabric
from dasklab.sim.cluster.shuffle import Shuffle
from dasklab.sim.cluster.tasks import SimExecutor, Work
from dasklab.sim.kernel import Host, Kernel, VirtualLoop
from dasklab.sim.kernel.clock import EPOCH_S
from dasklab.sim.network import Network

HANDOFF_S, CPU_S, IDLE_S = 0.25, 2.0, 1.0


def test_start_and_stop_do_not_include_the_handoff_to_the_thread() -> None:
    kernel = Kernel(0)
    host = Host(kernel)
    loop = VirtualLoop.create(kernel, host)
    shuffle = Shuffle(Fabric(kernel, Network(kernel, {}, 0.0)), lambda key, machine: None, 0)
    work = Work(CPU_S, IDLE_S, nbytes=28)
    executor = SimExecutor(kernel, "a", host, lambda key, prefix: work, shuffle, 0.0, HANDOFF_S)
    future = executor.simulate(loop, None, Task("work-1", int), {}, delay_s=0.5)
    assert kernel.run_until(future.done)
    message = future.result()
    assert message["start"] - EPOCH_S == pytest.approx(0.5 + HANDOFF_S)
    assert message["stop"] - message["start"] == pytest.approx(IDLE_S + CPU_S)

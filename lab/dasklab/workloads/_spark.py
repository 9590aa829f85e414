"""What workloads on Spark share, as ``_harness.py`` has it for those on Dask: the wait, the clock, the file.

The counterpart of the workload NAME.py is ``_spark_NAME.py``, with ``prepare(spark, ...) -> Job``: the same
rows in as many partitions, kept in memory, and the same answer.

    python _spark_join.py --scheduler spark://10.0.0.2:7077 --params '{"rows": 200000}' --runs 5 --workers 3
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import _harness
from _harness import Job

LOOKS_S, PATIENCE_S = 0.2, 60


def main(prepare: Callable[..., Job], argv: list[str] | None = None) -> None:
    """Read the command line, measure ``prepare``'s job on Spark, write the timings file, exit."""
    file, defaults = Path(inspect.getfile(prepare)).stem, _harness.parameters(prepare)
    name = file.removeprefix("_spark_")
    args = _harness.command_line(file, inspect.getmodule(prepare), defaults).parse_args(argv)
    params = _harness.checked(args.params, defaults)
    _reach(args.scheduler, args.timeout_s)
    spark = _session(args.scheduler, name)
    try:
        _wait(spark, args.workers, args.timeout_s)
        job = prepare(spark, **params)
        samples = [_sample(spark, job, run, run < args.warmups) for run in range(args.warmups + args.runs)]
        document = _harness.document(name, params, job, samples, _cluster(list(_executors(spark))))
        document["versions"] |= {"spark": spark.version, "java": _java(spark)}
        document["config"] = _told(args.settings, lambda key: spark.conf.get(key, None))
        document["packages"] = _told(args.packages, importlib.metadata.version)
    finally:
        spark.stop()
    _harness.write(document, args.output)


def _reach(master: str, timeout_s: float) -> None:
    """A driver gives up on a master after a minute, and a slow host takes longer to start one."""
    address, until = urlsplit(master), time.monotonic() + timeout_s
    while address.scheme == "spark":
        with contextlib.suppress(OSError), socket.create_connection((address.hostname, address.port), 5):
            return
        if time.monotonic() > until:
            _harness.leave(4, f"no master answers at {master}")
        time.sleep(LOOKS_S)


def _session(master: str, name: str) -> Any:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.master(master).appName(name).getOrCreate()
    except Py4JJavaError as error:
        _harness.leave(4, str(error.java_exception.getMessage()).splitlines()[0])


def _wait(spark: Any, workers: int, timeout_s: float) -> None:
    """Start when exactly so many executors are there."""
    until = time.monotonic() + timeout_s
    while len(found := list(_executors(spark))) < workers and time.monotonic() < until:
        time.sleep(LOOKS_S)
    if len(found) != workers:
        spark.stop()
        _harness.leave(4, f"{len(found)} executors are connected, {workers} were asked for")


def _executors(spark: Any) -> Iterator[Any]:
    """What Spark knows of each; the driver is one of its list."""
    if spark.sparkContext._jsc is None:
        return
    found = _status(spark).executorList(True)
    for index in range(found.size()):
        if found.apply(index).id() != "driver":
            yield found.apply(index)


def _status(spark: Any) -> Any:
    """Spark's record of its jobs, once all that happened is in it; there without its web page, too."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty(1000 * PATIENCE_S)
    return context.statusStore()


def _sample(spark: Any, job: Job, run: int, warmup: bool) -> dict[str, Any]:
    """One timed run; ``transfer_bytes``: of shuffles to each other, and what the driver got."""
    before = _moved(spark)
    sample: dict[str, Any] = _harness.timed(job, run, warmup)
    return sample | {"transfer_bytes": _moved(spark) - before}


def _moved(spark: Any) -> int:
    nothing, quantiles = _no_list(spark), spark.sparkContext._gateway.new_array(spark._jvm.double, 0)
    stages = _status(spark).stageList(nothing, False, False, quantiles, nothing)
    found = [stages.apply(index) for index in range(stages.size())]
    return sum(stage.shuffleRemoteBytesRead() + stage.resultSize() for stage in found)


def _no_list(spark: Any) -> Any:
    return spark._jvm.java.util.ArrayList()


def _cluster(executors: list[Any]) -> dict[str, Any]:
    """Who takes part; executors have numbers for names, and ports once they have worked."""
    return {
        "workers": len(executors),
        "threads": sum(each.totalCores() for each in executors),
        "addresses": {each.id(): f"tcp://{each.hostPort()}" for each in executors},
    }


def _java(spark: Any) -> str:
    return str(spark._jvm.java.lang.System.getProperty("java.version"))


def _told(names: str, ask: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
    """What the driver says of what is named: executors run with what it tells them."""
    return {"client": {name: ask(name) for name in names.split(",")}} if names else {}

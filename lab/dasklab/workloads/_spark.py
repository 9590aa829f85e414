"""What all workloads on Spark share, in addition to ``_harness.py``: waiting for executors, timing.

The counterpart of the workload NAME.py is ``_spark_NAME.py`` with ``prepare(spark, ...) -> Job``: the same
rows in as many partitions, kept in memory, and the same answer.

    python _spark_join.py --scheduler spark://10.0.0.2:7077 --params '{"rows": 9000}' --repeats 5 --workers 3
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
import _losses
from _harness import Job

POLL_S = 0.2
LISTENER_TIMEOUT_S = 60


def main(prepare: Callable[..., Job], argv: list[str] | None = None) -> None:
    """Read the command line, measure the job that ``prepare`` returns, write the timings file, exit."""
    file, defaults = Path(inspect.getfile(prepare)).stem, _harness.parameters(prepare)
    name = file.removeprefix("_spark_")
    args = _harness.command_line(file, inspect.getmodule(prepare), defaults).parse_args(argv)
    params = _harness.checked(args.params, defaults)
    patience_s = min(args.timeout_s, _losses.PATIENCE_S)
    _wait_for_master(args.scheduler, patience_s)
    spark = _session(args.scheduler, name)
    try:
        _wait_for_executors(spark, args.workers, patience_s)
        job = prepare(spark, **params)
        samples = [
            _sample(spark, job, repeat, repeat < args.warmups)
            for repeat in range(args.warmups + args.repeats)
        ]
        document = _harness.document(name, params, job, samples, _cluster(list(_executors(spark))))
        document["versions"] |= {"spark": spark.version, "java": _java(spark)}
        document["config"] = _of_driver(args.settings, lambda key: spark.conf.get(key, None))
        document["packages"] = _of_driver(args.packages, importlib.metadata.version)
    finally:
        spark.stop()
    _harness.write(document, args.output)


def _wait_for_master(master: str, timeout_s: float) -> None:
    """Wait until the master listens. A driver gives up after a minute, which is too short for slow hosts."""
    address, deadline = urlsplit(master), time.monotonic() + timeout_s
    while address.scheme == "spark":
        with contextlib.suppress(OSError), socket.create_connection((address.hostname, address.port), 5):
            return
        if time.monotonic() > deadline:
            _harness.leave(4, f"no master answers at {master}")
        time.sleep(POLL_S)


def _session(master: str, name: str) -> Any:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.master(master).appName(name).getOrCreate()
    except Py4JJavaError as error:
        _harness.leave(4, str(error.java_exception.getMessage()).splitlines()[0])


def _wait_for_executors(spark: Any, workers: int, patience_s: float) -> None:
    """Wait until exactly this many executors are connected, for each further one at most ``patience_s``."""
    connected, deadline = 0, time.monotonic() + patience_s
    while connected < workers and time.monotonic() < deadline:
        time.sleep(POLL_S)
        if (number := len(list(_executors(spark)))) != connected:
            connected, deadline = number, time.monotonic() + patience_s
    if connected != workers:
        spark.stop()
        _harness.leave(4, f"{connected} executors are connected, {workers} were requested")


def _executors(spark: Any) -> Iterator[Any]:
    """Yield Spark's record of each executor. Its list includes the driver, which is left out."""
    if spark.sparkContext._jsc is None:
        return
    records = _status(spark).executorList(True)
    for index in range(records.size()):
        if records.apply(index).id() != "driver":
            yield records.apply(index)


def _status(spark: Any) -> Any:
    """Return Spark's record of its jobs, once it is complete. It exists without Spark's web page, too."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty(1000 * LISTENER_TIMEOUT_S)
    return context.statusStore()


def _sample(spark: Any, job: Job, repeat: int, warmup: bool) -> dict[str, Any]:
    """Time one repeat; ``transfer_bytes`` is what shuffles read from other hosts plus what the driver got."""
    before = _transfer_bytes(spark)
    sample: dict[str, Any] = _harness.timed(job, repeat, warmup)
    return sample | {"transfer_bytes": _transfer_bytes(spark) - before}


def _transfer_bytes(spark: Any) -> int:
    empty, no_quantiles = _empty_list(spark), spark.sparkContext._gateway.new_array(spark._jvm.double, 0)
    records = _status(spark).stageList(empty, False, False, no_quantiles, empty)
    stages = [records.apply(index) for index in range(records.size())]
    return sum(stage.shuffleRemoteBytesRead() + stage.resultSize() for stage in stages)


def _empty_list(spark: Any) -> Any:
    return spark._jvm.java.util.ArrayList()


def _cluster(executors: list[Any]) -> dict[str, Any]:
    """Describe the executors. Their names are numbers, and they have ports once they have worked."""
    return {
        "workers": len(executors),
        "threads": sum(executor.totalCores() for executor in executors),
        "addresses": {executor.id(): f"tcp://{executor.hostPort()}" for executor in executors},
    }


def _java(spark: Any) -> str:
    return str(spark._jvm.java.lang.System.getProperty("java.version"))


def _of_driver(names: str, read: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
    """Return what the driver reads for the names. Executors run with what the driver sends them."""
    return {"client": {name: read(name) for name in names.split(",")}} if names else {}

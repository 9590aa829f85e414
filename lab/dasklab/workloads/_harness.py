"""What all workloads share: command line, waiting for workers, timing, checking the answer, output file.

A workload is a file with one function. It imports nothing of the lab, so it also runs on any other cluster:

    def prepare(client, size=10_000, chunk=1_000) -> Job: ...
    if __name__ == "__main__":
        main(prepare)

The keyword arguments of ``prepare`` are the workload's parameters. Their defaults give name, type, and the
value for real hardware. ``Job.run(i)`` does the timed work of repeat ``i`` and returns the number to check.

    python array_study.py --scheduler tcp://10.0.0.2:8786 --params '{"size": 2000, "chunk": 500}' \\
        --repeats 5 --warmups 1 --workers 3 --output timings.json

Exit status: 0 measured (whether the answer was right is in the file), 2 wrong arguments, 3 this machine lacks
a package that the workload needs, 4 the cluster was not ready in time, or lost a worker.
"""

# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-call"
from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import inspect
import json
import math
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import _losses
import _pulse
import cloudpickle
from distributed import Client, performance_report
from distributed.comm.core import CommClosedError
from distributed.shuffle._comms import CommShardsBuffer

COUNTED = "dasklab_counted"  # attribute of Dask's class whose messages of shuffles are counted
PACKAGES = ("dask", "distributed", "numpy", "pandas", "pyarrow", "msgpack", "tornado", "cloudpickle", "lz4")


@dataclass(frozen=True)
class Job:
    """The work of one trial.

    Attributes:
        run: the timed work; it gets the number of the repeat and returns the answer.
        expected: the right answer, within ``tolerance``.
        tasks: the number of tasks in one repeat, for workloads that measure the time per task.
    """

    run: Callable[[int], float]
    expected: float
    tolerance: float = 0.0
    tasks: int | None = None

    def accepts(self, answer: float) -> bool:
        """Return whether an answer is right. NaN never is."""
        return math.isfinite(answer) and abs(answer - self.expected) <= self.tolerance


def main(prepare: Callable[..., Job], argv: list[str] | None = None) -> None:
    """Read the command line, measure the job that ``prepare`` returns, write the timings file, exit."""
    defaults = parameters(prepare)
    name = Path(inspect.getfile(prepare)).stem
    args = command_line(name, inspect.getmodule(prepare), defaults).parse_args(argv)
    params = checked(args.params, defaults)
    # The workers have neither this file nor the workload's: send functions by value.
    for module in (sys.modules[__name__], _pulse, sys.modules[prepare.__module__]):
        cloudpickle.register_pickle_by_value(module)
    patience_s = min(args.timeout_s, _losses.PATIENCE_S)
    with Client(args.scheduler, timeout=patience_s) as client:
        if args.signal is None:  # else faults are armed, and may be meant to end a worker
            _losses.end_on_loss(client)
        _wait(client, args.workers, patience_s)
        try:
            job = prepare(client, **params)
        except ImportError as error:
            leave(3, f"{name}: {error}")
        with _performance_report(args.report):
            samples = _samples(client, job, args)
        content = document(name, params, job, samples, _cluster(client))
        content["config"] = _read_everywhere(client, _settings, args.settings)
        content["packages"] = _read_everywhere(client, _packages, args.packages)
    write(content, args.output)


# --- the command line, for workloads on Spark too -----------------------------------------------------------


def parameters(prepare: Callable[..., Job]) -> dict[str, Any]:
    """Return name and default of each parameter: the keyword arguments of ``prepare`` after the client."""
    arguments = list(inspect.signature(prepare).parameters.values())[1:]
    return {argument.name: argument.default for argument in arguments}


def command_line(name: str, module: Any, defaults: dict[str, Any]) -> argparse.ArgumentParser:
    """Return the parser of a workload's command line."""
    described = ", ".join(f"{key}={value!r}" for key, value in defaults.items())
    parser = argparse.ArgumentParser(
        prog=f"{name}.py",
        description=module.__doc__,
        epilog=f"parameters and their defaults: {described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scheduler", required=True, help="address, for example tcp://10.0.0.2:8786")
    parser.add_argument("--params", default="{}", help="JSON object of parameters")
    parser.add_argument("--repeats", type=int, default=10, help="timed repeats (default %(default)s)")
    parser.add_argument(
        "--warmups", type=int, default=1, help="repeats before the timed ones (default %(default)s)"
    )
    parser.add_argument("--workers", type=int, default=1, help="start when exactly this many are connected")
    parser.add_argument(
        "--timeout-s",
        type=float,
        default=_losses.PATIENCE_S,
        help=f"limit for connecting, and for each further worker; at most {_losses.PATIENCE_S:g}",
    )
    parser.add_argument("--settings", default="", help="Dask settings to record, separated by commas")
    parser.add_argument("--packages", default="", help="packages whose installed versions are recorded")
    parser.add_argument(
        "--signal", help="file to create on the cluster's hosts when the first timed repeat begins"
    )
    parser.add_argument(
        "--report", type=Path, help="write Dask's performance report of the repeats; needs bokeh"
    )
    parser.add_argument(
        "--record", type=Path, help="folder for a record of the repeats (default: none); needs dasklab"
    )
    parser.add_argument("--output", type=Path, help="timings file (default: standard output)")
    return parser


def checked(text: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """Return all parameters: those of the command line converted to their defaults' types, and the defaults.

    An unknown parameter ends the program.
    """
    values = json.loads(text)
    unknown = sorted(set(values) - set(defaults))
    if unknown:
        leave(2, f"unknown parameter {', '.join(unknown)}; allowed: {', '.join(defaults)}")
    return defaults | {key: type(defaults[key])(value) for key, value in values.items()}


# --- repeats -----------------------------------------------------------------------------------------------


def _wait(client: Client, workers: int, patience_s: float) -> None:
    """Wait until all workers are connected, for each further one at most ``patience_s``."""
    connected = 0
    while connected < workers:
        try:
            client.wait_for_workers(connected + 1, timeout=patience_s)
        except TimeoutError:
            leave(4, f"{connected} of {workers} workers connected, and no other one within {patience_s:g} s")
        connected = len(workers_of(client))
    if connected != workers:
        leave(4, f"{connected} workers are connected, {workers} were requested")


def _samples(client: Client, job: Job, args: argparse.Namespace) -> list[Any]:
    """Execute all repeats and return a sample of each. What Dask recorded is fetched in between."""
    samples = []
    with _recording(client, args.record) as collect:
        collect(None)  # what was recorded before the first repeat belongs to none
        _pulse.watch(client)
        names = {address: name for name, address in _addresses(workers_of(client)).items()}
        for repeat in range(args.warmups + args.repeats):
            if args.signal and repeat == args.warmups:
                _signal(client, args.signal)
            _pulse.take(client, names)
            sample = _sample(client, job, repeat, repeat < args.warmups)
            samples.append(sample | {"pauses": _pulse.take(client, names)})
            collect(sample)
        _pulse.end(client)
        _stop_counting(client)
    return samples


@contextlib.contextmanager
def _recording(client: Client, folder: Path | None) -> Iterator[Callable[[dict[str, Any] | None], None]]:
    """Record a cluster into a folder. Yield how to fetch what was recorded in a repeat, or before any.

    A cluster that cannot be recorded, such as one with a scheduler of another make, is timed all the same.
    """
    if folder is None:
        yield lambda sample: None
        return
    from dasklab.errors import LabError  # here: without --record a workload needs nothing of the lab
    from dasklab.records.document import RecordedRepeat
    from dasklab.records.session import Session

    with contextlib.ExitStack() as stack:
        try:
            session = stack.enter_context(Session(client, folder, hold=True))
        except (LabError, OSError) as error:
            sys.stderr.write(
                f"this cluster cannot be recorded ({error}); its repeats are timed all the same\n"
            )
            yield lambda sample: None
            return

        def collect(sample: dict[str, Any] | None) -> None:
            names = ("repeat", "warmup", "start", "stop")
            session.collect(RecordedRepeat(*(sample[name] for name in names)) if sample else None)

        yield collect


def _performance_report(path: Path | None) -> contextlib.AbstractContextManager[Any]:
    """Return Dask's performance report of what runs inside, as one file that opens without internet."""
    if path is None:
        return contextlib.nullcontext()
    return performance_report(filename=str(path), mode="inline")


def _sample(client: Client, job: Job, repeat: int, warmup: bool) -> dict[str, Any]:
    """Time one repeat; ``transfer_bytes`` is what workers sent to each other, on request or in shuffles."""
    sent_before, cpu_before = _sent_bytes(client), client.run_on_scheduler(time.process_time)
    sample = timed(job, repeat, warmup)
    scheduler_cpu_s = client.run_on_scheduler(time.process_time) - cpu_before
    transfer_bytes = sum(
        nbytes - sent_before.get(worker, 0) for worker, nbytes in _sent_bytes(client).items()
    )
    return sample | {"transfer_bytes": transfer_bytes, "scheduler_cpu_s": scheduler_cpu_s}


def timed(job: Job, repeat: int, warmup: bool) -> dict[str, Any]:
    """Time one repeat, on whatever engine: when it ran, how long it took, and its answer."""
    start, clock = time.time(), time.perf_counter()
    answer = float(job.run(repeat))
    duration_s, stop = time.perf_counter() - clock, time.time()
    return {
        "repeat": repeat,
        "warmup": warmup,
        "start": start,
        "stop": stop,
        "duration_s": duration_s,
        "answer": answer,
        "ok": job.accepts(answer),
    }


def _signal(client: Client, path: str) -> None:
    """Tell the hosts that wait for this file that the first timed repeat begins."""
    answers = client.run(_touch, path, on_error="return")
    for answer in answers.values():
        # a fault that begins at once may end a worker before it has answered
        if isinstance(answer, Exception) and not isinstance(answer, CommClosedError):
            raise answer
    client.run_on_scheduler(_touch, path)


def _touch(path: str) -> None:
    """Create a file on a host of the cluster. A host where nothing waits for it does not have its folder."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).touch()


def _sent_bytes(client: Client) -> dict[str, int]:
    """Return the bytes that each worker has sent so far. A worker that dies is missing.

    Dask's counters of shuffles include the shards that a worker keeps, so the first call begins to count.
    """

    def total(dask_worker: Any) -> int:
        shuffle: Any = CommShardsBuffer
        if not hasattr(shuffle, COUNTED):
            replaced, original, counter = vars(shuffle).get("process"), shuffle.process, Counter[str]()

            async def process(buffer: Any, address: str, shards: Any, size: int) -> None:
                await original(buffer, address, shards, size)
                if address != (own := buffer.send.__self__.local_address):
                    counter[own] += size

            setattr(shuffle, COUNTED, (replaced, counter))
            shuffle.process = process
        counter = getattr(shuffle, COUNTED)[1]
        return int(dask_worker.transfer_outgoing_bytes_total + counter[dask_worker.address])

    answers = client.run(total, on_error="return")
    return {worker: answer for worker, answer in answers.items() if isinstance(answer, int)}


def _stop_counting(client: Client) -> None:
    """Undo what ``_sent_bytes`` changed in the workers."""

    def restore() -> None:
        shuffle: Any = CommShardsBuffer
        if hasattr(shuffle, COUNTED):
            replaced, _ = getattr(shuffle, COUNTED)
            delattr(shuffle, COUNTED)
            del shuffle.process
            if replaced:  # else it inherits that method
                shuffle.process = replaced

    client.run(restore, on_error="return")


# --- the cluster -------------------------------------------------------------------------------------------


def workers_of(client: Client) -> dict[str, dict[str, Any]]:
    """Return name and threads of each worker, by address.

    The scheduler is asked, because what a client itself knows differs between versions of Dask.
    """

    def describe(dask_scheduler: Any) -> dict[str, dict[str, Any]]:
        workers = dask_scheduler.workers.values()
        return {worker.address: {"name": str(worker.name), "threads": worker.nthreads} for worker in workers}

    return dict(client.run_on_scheduler(describe))


def _cluster(client: Client) -> dict[str, Any]:
    """Describe scheduler and workers, as their processes report it."""
    workers = workers_of(client)
    addresses = _addresses(workers)
    processes = client.run(_process)
    return {
        "workers": len(workers),
        "threads": sum(worker["threads"] for worker in workers.values()),
        "addresses": addresses,
        "processes": {
            name: {"host": urlsplit(address).hostname} | processes[address]
            for name, address in addresses.items()
        },
        "scheduler": client.run_on_scheduler(_scheduler),
    }


def _process(dask_worker: Any) -> dict[str, Any]:
    zero = type(dask_worker).__name__ == "Zero"
    return {"pid": os.getpid(), "threads": dask_worker.state.nthreads, "zero": zero}


def _scheduler(dask_scheduler: Any) -> dict[str, Any]:
    loop = getattr(dask_scheduler.io_loop, "asyncio_loop", None)
    choose = getattr(dask_scheduler, "decide_worker_non_rootish", None)
    return {
        "command": os.environ.get("DASKLAB_SCHEDULER", ""),
        "loop": type(loop).__module__.partition(".")[0],
        "placement": getattr(choose, "__module__", ""),
    }


def _addresses(workers: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {worker["name"]: address for address, worker in workers.items()}


def _settings(names: list[str]) -> dict[str, Any]:
    import dask

    return {name: dask.config.get(name, None) for name in names}


def _packages(names: list[str]) -> dict[str, Any]:
    """Return installed versions. Of environments on top of each other, the first one is also imported."""
    return {name: importlib.metadata.version(name) for name in names}


def _read_everywhere(
    client: Client, read: Callable[[list[str]], Any], names: str
) -> dict[str, dict[str, Any]]:
    """Return what client, scheduler and each worker read for the names; workers are named by their names."""
    if not names:
        return {}
    listed = names.split(",")
    by_address = client.run(read, listed)
    result = {"client": read(listed), "scheduler": client.run_on_scheduler(read, listed)}
    return result | {name: by_address[address] for name, address in _addresses(workers_of(client)).items()}


# --- the output file, for workloads on Spark too ------------------------------------------------------------


def document(name: str, params: Any, job: Job, samples: Any, cluster: Any) -> dict[str, Any]:
    """Return the content of timings.json."""
    worst = max(samples, key=lambda sample: abs(sample["answer"] - job.expected))
    return {
        "workload": name,
        "params": params,
        "tasks": job.tasks,
        "samples": samples,
        "check": {
            "expected": job.expected,
            "answer": worst["answer"],
            "tolerance": job.tolerance,
            "ok": all(sample["ok"] for sample in samples),
        },
        "cluster": cluster,
        "versions": {"python": platform.python_version()} | _installed(),
    }


def _installed() -> dict[str, str]:
    present = {dist.metadata["Name"].lower() for dist in importlib.metadata.distributions()}
    return {name: importlib.metadata.version(name) for name in PACKAGES if name in present}


def write(content: dict[str, Any], path: Path | None) -> None:
    """Write the document to the file, or to standard output."""
    text = json.dumps(content, indent=1) + "\n"
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")


def leave(status: int, message: str) -> Any:
    """Exit with one line of explanation."""
    sys.stderr.write(message + "\n")
    sys.exit(status)

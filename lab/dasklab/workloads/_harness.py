"""What every workload shares: the command line, the wait for workers, the clock, the check, the file.

A workload is one file with one function and nothing from the lab, so that it also runs on any cluster:

    def prepare(client, size=10_000, chunk=1_000) -> Job: ...
    if __name__ == "__main__":
        main(prepare)

The keyword arguments of ``prepare`` are the workload's parameters; their defaults give name, type and the
value for real hardware. ``Job.run(i)`` does the timed work of run ``i`` and returns the number to check.

    python array_study.py --scheduler tcp://10.0.0.2:8786 --params '{"size": 2000, "chunk": 500}' \\
        --runs 5 --warmups 1 --workers 3 --output timings.json

Exit status: 0 measured (the check's verdict is in the file), 2 wrong arguments, 3 this machine lacks a
package that the workload needs, 4 the cluster did not come up in time.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import _inside
import _pulse
import cloudpickle
from distributed import Client, performance_report

PACKAGES = ("dask", "distributed", "numpy", "pandas", "pyarrow", "msgpack", "tornado", "cloudpickle", "lz4")


@dataclass(frozen=True)
class Job:
    """The work of one trial: ``run(i)`` is timed and must return ``expected`` within ``tolerance``.

    ``tasks``, where the time per task is the question, is how many tasks one run has.
    """

    run: Callable[[int], float]
    expected: float
    tolerance: float = 0.0
    tasks: int | None = None

    def accepts(self, got: float) -> bool:
        """Is ``got`` the right answer? NaN never is."""
        return math.isfinite(got) and abs(got - self.expected) <= self.tolerance


def main(prepare: Callable[..., Job], argv: list[str] | None = None) -> None:
    """Read the command line, measure ``prepare``'s job, write the timings file, exit."""
    defaults = parameters(prepare)
    name = Path(inspect.getfile(prepare)).stem
    args = command_line(name, inspect.getmodule(prepare), defaults).parse_args(argv)
    params = checked(args.params, defaults)
    # The workers have neither this file nor the workload's: ship functions by value.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cloudpickle.register_pickle_by_value(_inside)
    cloudpickle.register_pickle_by_value(_pulse)
    cloudpickle.register_pickle_by_value(sys.modules[prepare.__module__])
    with Client(args.scheduler, timeout=args.timeout_s) as client:
        _wait(client, args.workers, args.timeout_s)
        try:
            job = prepare(client, **params)
        except ImportError as error:
            leave(3, f"{name}: {error}")
        with _reported(args.report):
            samples, taken = _samples(client, job, args)
        told = document(name, params, job, samples, _cluster(client))
        if inside := _inside.packed(taken):
            told["inside"] = inside
        told["config"] = _everywhere(client, _settings, args.settings)
        told["packages"] = _everywhere(client, _packages, args.packages)
    write(told, args.output)


def parameters(prepare: Callable[..., Job]) -> dict[str, Any]:
    """Name and default of each parameter: the keyword arguments of ``prepare`` after the client."""
    arguments = list(inspect.signature(prepare).parameters.values())[1:]
    return {argument.name: argument.default for argument in arguments}


def command_line(name: str, module: Any, defaults: dict[str, Any]) -> argparse.ArgumentParser:
    """What a workload understands, whatever it runs on."""
    described = ", ".join(f"{key}={value!r}" for key, value in defaults.items())
    parser = argparse.ArgumentParser(
        prog=f"{name}.py",
        description=module.__doc__,
        epilog=f"parameters and their defaults: {described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scheduler", required=True, help="address, as tcp://10.0.0.2:8786")
    parser.add_argument("--params", default="{}", help="JSON object of parameters")
    parser.add_argument("--runs", type=int, default=10, help="timed runs (default %(default)s)")
    parser.add_argument("--warmups", type=int, default=1, help="runs before those, kept apart")
    parser.add_argument("--workers", type=int, default=1, help="start when exactly so many are connected")
    parser.add_argument("--timeout-s", type=float, default=120, help="for the connection and the workers")
    parser.add_argument("--settings", default="", help="Dask's settings to read back, separated by commas")
    parser.add_argument("--packages", default="", help="packages whose versions are read back, the same way")
    parser.add_argument("--told", help="file that the cluster's hosts get when the first timed run begins")
    parser.add_argument("--report", type=Path, help="Dask's own report of the runs; takes bokeh there")
    parser.add_argument("--output", type=Path, help="timings file; standard output if not given")
    return parser


def checked(text: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """All parameters, those of the command line of their defaults' types; an unknown one ends it."""
    given = json.loads(text)
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        leave(2, f"unknown parameter {', '.join(unknown)}; allowed: {', '.join(defaults)}")
    return defaults | {key: type(defaults[key])(value) for key, value in given.items()}


def _wait(client: Client, workers: int, timeout_s: float) -> None:
    try:
        client.wait_for_workers(workers, timeout=timeout_s)
    except TimeoutError:
        leave(4, f"{len(workers_of(client))} of {workers} workers connected within {timeout_s:g} s")
    if len(workers_of(client)) != workers:
        leave(4, f"{len(workers_of(client))} workers are connected, {workers} were asked for")


def _samples(client: Client, job: Job, args: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    """All runs; and after each, outside of what is timed, what Dask recorded of it.

    Dask's own report is made of the same records: for it they are left where they are.
    """
    samples, taken = [], []
    sent = _inside.watch(client)
    if args.report is None:
        _inside.take(client, sent)  # what came before the first run is of none
    _pulse.watch(client)
    names = {address: name for name, address in _addresses(workers_of(client)).items()}
    for run in range(args.warmups + args.runs):
        if args.told and run == args.warmups:
            client.run(_touch, args.told)
            client.run_on_scheduler(_touch, args.told)
        _pulse.take(client, names)
        sample = _sample(client, job, run, run < args.warmups)
        samples.append(sample | {"pauses": _pulse.take(client, names)})
        taken.append(None if args.report else _inside.take(client, sent))
    _pulse.end(client)
    return samples, taken


def _reported(path: Path | None) -> contextlib.AbstractContextManager[Any]:
    """Dask's own report of what runs inside, whole in one file: it opens without internet."""
    if path is None:
        return contextlib.nullcontext()
    return performance_report(filename=str(path), mode="inline")


def _sample(client: Client, job: Job, run: int, warmup: bool) -> dict[str, Any]:
    """One timed run; ``transfer_bytes``: the data that workers were asked for meanwhile (p2p pushes not)."""
    before, cpu = _sent(client), client.run_on_scheduler(time.process_time)
    sample = timed(job, run, warmup)
    scheduler_cpu_s = client.run_on_scheduler(time.process_time) - cpu
    moved = sum(sent - before.get(worker, 0) for worker, sent in _sent(client).items())
    return sample | {"transfer_bytes": moved, "scheduler_cpu_s": scheduler_cpu_s}


def timed(job: Job, run: int, warmup: bool) -> dict[str, Any]:
    """One run, whatever computes it: when, how long, what came of it."""
    start, clock = time.time(), time.perf_counter()
    got = float(job.run(run))
    duration_s, stop = time.perf_counter() - clock, time.time()
    return {
        "run": run,
        "warmup": warmup,
        "start": start,
        "stop": stop,
        "duration_s": duration_s,
        "answer": got,
        "ok": job.accepts(got),
    }


def _touch(path: str) -> None:
    """On a host of the cluster; where nobody waits for the file there is no place for it."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).touch()


def _sent(client: Client) -> dict[str, int]:
    """By worker: one that died took its number along, one that dies while it is asked too."""

    def total(dask_worker: Any) -> int:
        return int(dask_worker.transfer_outgoing_bytes_total)

    answers = client.run(total, on_error="return")
    return {worker: answer for worker, answer in answers.items() if isinstance(answer, int)}


def workers_of(client: Client) -> dict[str, dict[str, Any]]:
    """Every worker by its address: what a client itself knows of them differs with Dask's version."""

    def known(dask_scheduler: Any) -> dict[str, dict[str, Any]]:
        workers = dask_scheduler.workers.values()
        return {each.address: {"name": str(each.name), "threads": each.nthreads} for each in workers}

    return dict(client.run_on_scheduler(known))


def _cluster(client: Client) -> dict[str, Any]:
    """Who takes part, as the processes themselves say it."""
    workers = workers_of(client)
    addresses = _addresses(workers)
    found = client.run(_process)
    return {
        "workers": len(workers),
        "threads": sum(worker["threads"] for worker in workers.values()),
        "addresses": addresses,
        "processes": {
            name: {"host": urlsplit(address).hostname} | found[address] for name, address in addresses.items()
        },
        "scheduler": client.run_on_scheduler(_seated),
    }


def _process(dask_worker: Any) -> dict[str, Any]:
    zero = type(dask_worker).__name__ == "Zero"
    return {"pid": os.getpid(), "threads": dask_worker.state.nthreads, "zero": zero}


def _seated(dask_scheduler: Any) -> dict[str, Any]:
    loop = getattr(dask_scheduler.io_loop, "asyncio_loop", None)
    choose = getattr(dask_scheduler, "decide_worker_non_rootish", None)
    return {
        "command": os.environ.get("DASKLAB_SEAT", ""),
        "loop": type(loop).__module__.partition(".")[0],
        "placement": getattr(choose, "__module__", ""),
    }


def _addresses(workers: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {worker["name"]: address for address, worker in workers.items()}


def _settings(names: list[str]) -> dict[str, Any]:
    import dask

    return {name: dask.config.get(name, None) for name in names}


def _packages(names: list[str]) -> dict[str, Any]:
    """The one that is found first is what is imported, where an environment stands on another."""
    return {name: importlib.metadata.version(name) for name in names}


def _everywhere(client: Client, ask: Callable[[list[str]], Any], names: str) -> dict[str, dict[str, Any]]:
    """What the client, the scheduler and each worker, by its name, say of what is named."""
    if not names:
        return {}
    listed = names.split(",")
    found = client.run(ask, listed)
    ours = {"client": ask(listed), "scheduler": client.run_on_scheduler(ask, listed)}
    return ours | {name: found[address] for name, address in _addresses(workers_of(client)).items()}


def document(name: str, params: Any, job: Job, samples: Any, cluster: Any) -> dict[str, Any]:
    """The content of timings.json."""
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


def write(told: dict[str, Any], path: Path | None) -> None:
    """To the file, or to standard output."""
    text = json.dumps(told, indent=1) + "\n"
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text)


def leave(status: int, message: str) -> Any:
    """End with one line on why."""
    sys.stderr.write(message + "\n")
    sys.exit(status)

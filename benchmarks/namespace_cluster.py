"""A Dask cluster in network namespaces whose nodes record, for other benchmarks.

    python benchmarks/namespace_cluster.py array_study '{"size": 2000, "chunk": 250}' --out FOLDER

Needs root, iproute2 and, for --capture, tcpdump. Writes the files of a trial to --out: timings.json and
record/ (or capture.json, capture.pcap and capture-record/), so `dasklab explain` reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "workload": (str, "one of the lab's workloads"),
            "params": ("{}", "its parameters, as JSON"),
            "--out": (Path, "folder of the trial"),
            "--workers": (3, "how many"),
            "--threads": (1, "of a worker"),
            "--repeats": (3, "repeats of the workload"),
            "--capture": (False, "capture the packets"),
            "--cap": ([str], "NODE=MBIT: limit what a node sends"),
        },
        smallest="array_study '{{\"size\": 400}}' --out {folder} --workers 1 --repeats 1 --capture",
        needs=("root", "ip", "tcpdump"),
    )

from dasklab.model.files import CAPTURE_RECORD_FOLDER, RECORD_FOLDER

from benchmarks import wire_cluster
from benchmarks.wire_cluster import Options, stop

ROOT = Path(__file__).parents[1]
QUIET = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class Cluster(wire_cluster.Cluster):
    """A cluster whose scheduler and workers may be started with preload scripts."""

    def workload(
        self, name: str, params: dict[str, Any], repeats: int, warmups: int = 1, record: Path | None = None
    ) -> dict[str, Any]:
        """Run one of the lab's workloads on the client and return its answer.

        Args:
            record: a new folder for a record of the cluster.
        """
        program = [sys.executable, str(ROOT / "lab" / "dasklab" / "workloads" / f"{name}.py")]
        workers = sum(node.startswith("worker") for node in self.nodes)
        argv = ["--scheduler", f"tcp://{self.nodes['scheduler']}:8786", "--params", json.dumps(params)]
        argv += ["--repeats", str(repeats), "--warmups", str(warmups), "--workers", str(workers)]
        argv += ["--record", str(record)] if record else []
        process = subprocess.run(
            ["ip", "netns", "exec", self.namespace("client"), *program, *argv, "--timeout-s", "120"],
            capture_output=True,
            text=True,
            env={**os.environ, **QUIET},
        )
        if process.returncode:
            sys.exit(f"{name} failed:\n{process.stderr}")
        return dict(json.loads(process.stdout))

    def cap(self, node: str, mbit: float) -> None:
        """Limit what a node sends; 0 lifts the limit."""
        qdisc = ["tc", "qdisc"]
        if mbit:
            bucket = ["rate", f"{mbit}mbit", "burst", "32kb", "latency", "200ms"]
            self.run_in(node, *qdisc, "replace", "dev", "eth0", "root", "tbf", *bucket)
        else:
            with contextlib.suppress(subprocess.CalledProcessError):  # there was none
                self.run_in(node, *qdisc, "del", "dev", "eth0", "root")

    def start_dask(self, node: str, threads: int, preloads: list[Path], settings: dict[str, str]) -> None:
        """Start the scheduler or a worker by Dask's own command."""
        kind, scheduler = node.partition("-")[0], self.nodes["scheduler"]
        argv = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard"]
        argv += ["--host", self.nodes[node]]
        if kind == "scheduler":
            argv += ["--port", "8786"]
        else:
            argv += [f"tcp://{scheduler}:8786", "--no-nanny", "--nthreads", str(threads), "--name", node]
            argv += ["--memory-limit", "0", "--local-directory", str(self.options.out / node)]
        for path in preloads:
            argv += ["--preload", str(path)]
        self.processes[node] = self.start(node, argv, f"{node}.log", **(QUIET | settings))


@contextlib.contextmanager
def cluster(
    out: Path,
    workers: int = 3,
    threads: int = 1,
    preloads: dict[str, list[Path]] | None = None,
    settings: dict[str, str] | None = None,
    capture: bool = False,
) -> Iterator[Cluster]:
    """Start a scheduler and workers, each in a namespace, and remove everything at the end.

    ``preloads`` are preload scripts by the name or the kind of a node.
    """
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that finally runs
    nodes = Cluster(Options(out, workers=workers), f"in{os.getpid()}")
    with nodes.network():
        dumper = nodes.start_tcpdump() if capture else None
        try:
            for node in list(nodes.nodes)[1:]:
                scripts: list[Path] = []
                for name in (node, node.partition("-")[0]):
                    scripts += (preloads or {}).get(name, [])
                nodes.start_dask(node, threads, scripts, settings or {})
            yield nodes
        finally:
            for process in nodes.processes.values():
                process.kill()
                process.wait()
            if dumper:
                time.sleep(1.2)  # the kernel delivers packets up to a second late
                stop(dumper, signal.SIGINT)


def keep(answer: dict[str, Any], out: Path, captured: bool = False) -> None:
    """Write a workload's answer as the files of a trial."""
    out.mkdir(parents=True, exist_ok=True)
    timings = {"schema": 4, **answer}
    if captured:
        capture = {
            "schema": 4, "interface": "br0", "driver": "bridge", "promiscuity": 1, "start": 0, "stop": 0,
            "expired": False, "snaplen": 262144, "filter": "", "frames": 1, "dropped_kernel": 0,
            "dropped_interface": 0, "left_behind": 0, "softnet_dropped": 0, "nic_statistics": {},
            "tiers": [], "timings": timings,
        }  # fmt: skip
        (out / "capture.json").write_text(json.dumps(capture, indent=1))
    else:
        (out / "timings.json").write_text(json.dumps(timings, indent=1))


def main(args: Namespace) -> None:
    with cluster(args.out, args.workers, args.threads, capture=args.capture) as nodes:
        for node, mbit in (cap.split("=") for cap in args.cap):
            nodes.cap(node, float(mbit))
        record = args.out / (CAPTURE_RECORD_FOLDER if args.capture else RECORD_FOLDER)
        answer = nodes.workload(
            args.workload, json.loads(args.params), args.repeats, 0 if args.capture else 1, record
        )
    keep(answer, args.out, args.capture)
    print([round(sample["duration_s"], 3) for sample in answer["samples"]])


if __name__ == "__main__":
    main(ARGUMENTS)

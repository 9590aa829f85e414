"""A Dask cluster in network namespaces whose nodes record, for other benchmarks.

    python benchmarks/namespace_cluster.py array_study '{"size": 2000, "chunk": 250}' --out FOLDER

Needs root, iproute2 and, for --capture, tcpdump. Writes the files of a trial to --out: timings.json and
records.json (or capture.json, capture.pcap and capture-records.json), so `dasklab explain` reads it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wire_cluster import hosts, network, sh, start, stop

ROOT = Path(__file__).parents[1]
PRELOAD = ROOT / "lab" / "dasklab" / "records" / "preload.py"
QUIET = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass
class Cluster:
    """The addresses and processes of a cluster's nodes."""

    out: Path
    tag: str
    nodes: dict[str, str]
    switch: str
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def workload(self, name: str, params: dict[str, Any], runs: int, warmups: int = 1) -> dict[str, Any]:
        """Run one of the lab's workloads on the client and return its answer."""
        program = [sys.executable, str(ROOT / "lab" / "dasklab" / "workloads" / f"{name}.py")]
        workers = sum(node.startswith("worker") for node in self.nodes)
        argv = ["--scheduler", f"tcp://{self.nodes['scheduler']}:8786", "--params", json.dumps(params)]
        argv += ["--runs", str(runs), "--warmups", str(warmups), "--workers", str(workers)]
        process = subprocess.run(
            ["ip", "netns", "exec", f"{self.tag}-client", *program, *argv, "--timeout-s", "120"],
            capture_output=True,
            text=True,
            env={**os.environ, **QUIET},
        )
        if process.returncode:
            sys.exit(f"{name} failed:\n{process.stderr}")
        return dict(json.loads(process.stdout))

    def cap(self, node: str, mbit: float) -> None:
        """Limit what a node sends; 0 lifts the limit."""
        qdisc = ["ip", "netns", "exec", f"{self.tag}-{node}", "tc", "qdisc"]
        if mbit:
            bucket = ["rate", f"{mbit}mbit", "burst", "32kb", "latency", "200ms"]
            sh(*qdisc, "replace", "dev", "eth0", "root", "tbf", *bucket)
        else:
            subprocess.run([*qdisc, "del", "dev", "eth0", "root"], check=False, capture_output=True)


@contextlib.contextmanager
def cluster(
    out: Path,
    workers: int = 3,
    threads: int = 1,
    record: bool = True,
    preloads: dict[str, list[Path]] | None = None,
    settings: dict[str, str] | None = None,
    capture: bool = False,
) -> Iterator[Cluster]:
    """Start a scheduler and workers, each in a namespace, and remove everything at the end.

    ``preloads`` are further preload scripts by the name or the kind of a node.
    """
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that finally runs
    nodes, tag = hosts(workers), f"in{os.getpid()}"
    address = f"tcp://{nodes['scheduler']}:8786"
    with network(nodes, False, tag) as switch:
        nodes_up = Cluster(out, tag, nodes, switch)
        try:
            if capture:
                dump = ["tcpdump", "-i", "br0", "-w", str(out / "capture.pcap"), "-B", "262144", "-n"]
                nodes_up.running["tcpdump"] = start(switch, ["nice", "-n", "-15", *dump], out / "tcpdump.log")
                time.sleep(0.5)
            for node in list(nodes)[1:]:
                kind = node.partition("-")[0]
                argv = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard", "--host"]
                argv += [nodes[node], "--port", "8786"] if kind == "scheduler" else [nodes[node], address]
                if kind == "worker":
                    argv += ["--no-nanny", "--nthreads", str(threads), "--name", node, "--memory-limit", "0"]
                    argv += ["--local-directory", str(out / node)]
                more = [path for name in (node, kind) for path in (preloads or {}).get(name, [])]
                for path in [*([PRELOAD] if record else []), *more]:
                    argv += ["--preload", str(path)]
                env = QUIET | (settings or {})
                nodes_up.running[node] = start(f"{tag}-{node}", argv, out / f"{node}.log", **env)
            yield nodes_up
        finally:
            dumper = nodes_up.running.pop("tcpdump", None)
            for process in nodes_up.running.values():
                process.kill()
                process.wait()
            if dumper:
                time.sleep(1.2)  # the kernel delivers packets up to a second late
                stop(dumper, signal.SIGINT)


def keep(answer: dict[str, Any], out: Path, captured: bool = False) -> None:
    """Write a workload's answer as the files of a trial."""
    out.mkdir(parents=True, exist_ok=True)
    recorded = answer.pop("records", None)
    timings = {"schema": 3, **answer}
    if captured:
        capture = {
            "schema": 3, "interface": "br0", "driver": "bridge", "promiscuity": 1, "start": 0, "stop": 0,
            "expired": False, "snaplen": 262144, "filter": "", "frames": 1, "dropped_kernel": 0,
            "dropped_interface": 0, "left_behind": 0, "softnet_dropped": 0, "nic_statistics": {},
            "tiers": [], "timings": timings,
        }  # fmt: skip
        (out / "capture.json").write_text(json.dumps(capture, indent=1))
    else:
        (out / "timings.json").write_text(json.dumps(timings, indent=1))
    if recorded:
        name = "capture-records.json" if captured else "records.json"
        (out / name).write_text(json.dumps({"schema": 3, "records": recorded}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload")
    parser.add_argument("params", type=json.loads, default={}, nargs="?")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--capture", action="store_true")
    parser.add_argument("--cap", action="append", default=[], metavar="NODE=MBIT")
    args = parser.parse_args()
    with cluster(args.out, args.workers, args.threads, capture=args.capture) as nodes:
        for node, mbit in (cap.split("=") for cap in args.cap):
            nodes.cap(node, float(mbit))
        answer = nodes.workload(args.workload, args.params, args.runs, warmups=0 if args.capture else 1)
    keep(answer, args.out, args.capture)
    print([round(sample["duration_s"], 3) for sample in answer["samples"]])


if __name__ == "__main__":
    main()

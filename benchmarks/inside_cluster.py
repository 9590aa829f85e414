"""A Dask cluster in network namespaces whose nodes record what they know: what the other inside_*.py run on.

    python benchmarks/inside_cluster.py array_study '{"size": 2000, "chunk": 250}' --out /tmp/trial --capture

Needs root, iproute2 and, for --capture, tcpdump. Leaves in --out what a trial of the lab leaves: timings.json
and records.json (or capture.json, capture.pcap and capture-records.json), so that `dasklab explain` reads it.
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
    """Where the nodes are; ``preloads`` are of a node's name, or of its kind, beside the recording one."""

    out: Path
    tag: str
    nodes: dict[str, str]
    switch: str
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def workload(self, name: str, params: dict[str, Any], runs: int, warmups: int = 1) -> dict[str, Any]:
        """Run one of the lab's workloads on the client; gives what it said."""
        program = [sys.executable, str(ROOT / "lab" / "dasklab" / "workloads" / f"{name}.py")]
        workers = sum(node.startswith("worker") for node in self.nodes)
        argv = ["--scheduler", f"tcp://{self.nodes['scheduler']}:8786", "--params", json.dumps(params)]
        argv += ["--runs", str(runs), "--warmups", str(warmups), "--workers", str(workers)]
        done = subprocess.run(
            ["ip", "netns", "exec", f"{self.tag}-client", *program, *argv, "--timeout-s", "120"],
            capture_output=True,
            text=True,
            env={**os.environ, **QUIET},
        )
        if done.returncode:
            sys.exit(f"{name} failed:\n{done.stderr}")
        said: dict[str, Any] = json.loads(done.stdout)
        return said

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
    """Scheduler and workers, each in a namespace; all is gone afterwards."""
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what is below is undone
    nodes, tag = hosts(workers), f"in{os.getpid()}"
    address = f"tcp://{nodes['scheduler']}:8786"
    with network(nodes, False, tag) as switch:
        made = Cluster(out, tag, nodes, switch)
        try:
            if capture:
                dump = ["tcpdump", "-i", "br0", "-w", str(out / "capture.pcap"), "-B", "262144", "-n"]
                made.running["tcpdump"] = start(switch, ["nice", "-n", "-15", *dump], out / "tcpdump.log")
                time.sleep(0.5)
            for node in list(nodes)[1:]:
                kind = node.partition("-")[0]
                argv = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard", "--host"]
                argv += [nodes[node], "--port", "8786"] if kind == "scheduler" else [nodes[node], address]
                if kind == "worker":
                    argv += ["--no-nanny", "--nthreads", str(threads), "--name", node, "--memory-limit", "0"]
                    argv += ["--local-directory", str(out / node)]
                more = [path for of in (node, kind) for path in (preloads or {}).get(of, [])]
                for path in [*([PRELOAD] if record else []), *more]:
                    argv += ["--preload", str(path)]
                env = QUIET | (settings or {})
                made.running[node] = start(f"{tag}-{node}", argv, out / f"{node}.log", **env)
            yield made
        finally:
            dumper = made.running.pop("tcpdump", None)
            for process in made.running.values():
                process.kill()
                process.wait()
            if dumper:
                time.sleep(1.2)  # the kernel hands packets over up to a second late
                stop(dumper, signal.SIGINT)


def keep(said: dict[str, Any], out: Path, captured: bool = False) -> None:
    """Write a workload's answer as the files of a trial."""
    out.mkdir(parents=True, exist_ok=True)
    inside = said.pop("inside", None)
    timings = {"schema": 3, **said}
    if captured:
        said = {
            "schema": 3, "interface": "br0", "driver": "bridge", "promiscuity": 1, "start": 0, "stop": 0,
            "expired": False, "snaplen": 262144, "filter": "", "frames": 1, "dropped_kernel": 0,
            "dropped_interface": 0, "left_behind": 0, "softnet_dropped": 0, "nic_statistics": {},
            "tiers": [], "timings": timings,
        }  # fmt: skip
        (out / "capture.json").write_text(json.dumps(said, indent=1))
    else:
        (out / "timings.json").write_text(json.dumps(timings, indent=1))
    if inside:
        name = "capture-records.json" if captured else "records.json"
        (out / name).write_text(json.dumps({"schema": 3, "records": inside}, indent=1))


def main() -> None:
    """Parse the options, run one workload, keep what it said."""
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
    with cluster(args.out, args.workers, args.threads, capture=args.capture) as made:
        for node, mbit in (cap.split("=") for cap in args.cap):
            made.cap(node, float(mbit))
        said = made.workload(args.workload, args.params, args.runs, warmups=0 if args.capture else 1)
    keep(said, args.out, args.capture)
    print([round(sample["duration_s"], 3) for sample in said["samples"]])


if __name__ == "__main__":
    main()

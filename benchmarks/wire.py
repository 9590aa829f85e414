"""How fast and how large: this decoder beside Scapy, dpkt, tshark and tcpdump, on the same files in one
run.

Makes its captures from real clusters in network namespaces (root, tcpdump, ethtool), or takes them:

    python benchmarks/wire.py --work /tmp/wire-bench            make captures there, run everything
    python benchmarks/wire.py --work /tmp/wire-bench --only veth shuffle --beside ../old-checkout
    python benchmarks/wire.py --gso A.pcap --mtu B.pcap --control C.pcap --work /tmp/wire-bench

What is counted: user plus system time of a process of its own, from its start to its end, less what the same
process costs on a capture of two packets (start-up, imports; the least of all rounds). In that time "wire"
opens the file, puts TCP streams together and decodes every Dask message; "wire, summary" also makes all that
``dasklab wire CAPTURE`` prints. dpkt and Scapy parse each packet down to TCP, tshark gives twelve fields of
it, tcpdump counts: none of them puts streams together. A rate is the packets of the file by that time, at
the best round and at the median of all; "wire_is_times" compares the best. The tools take turns. Slow tools
get the first part of a file; rates are per packet they saw. ``--beside`` measures the decoder of another
checkout too, in the same turns.

Before each run the file is read once, and memory touched and freed: a virtual machine may have given both
back to its host (free page reporting, swapping), and the first to touch them would pay for that, at times
more than for all its work. Scapy and dpkt come from an interpreter of their own (--tools-python), they are
no dependency of this project.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HEADER, RECORD = 24, 16

WIRE = """
import sys, json, collections
from daskwire import open_capture, summarise
capture = open_capture(sys.argv[1])
messages = capture.messages
if len(sys.argv) > 2: summarise(capture)
anon = [line.split()[1] for line in open('/proc/self/status') if line.startswith('RssAnon')][0]
print(json.dumps({'packets': capture.tally.packets, 'messages': len(messages), 'ops': len(messages.op_name),
                  'anon_mb': round(int(anon) / 1024), 'lost': int((~messages.complete).sum())}))
"""
DPKT = """
import sys, dpkt
count = 0
for when, data in dpkt.pcap.Reader(open(sys.argv[1], 'rb')):
    ethernet = dpkt.ethernet.Ethernet(data)
    ip = ethernet.data
    if isinstance(ip, dpkt.ip.IP) and isinstance(ip.data, dpkt.tcp.TCP): len(ip.data.data)
    count += 1
print(count)
"""
SCAPY = """
import sys
from scapy.utils import PcapReader
from scapy.layers.inet import TCP
from scapy.layers.l2 import Ether
count = 0
for packet in PcapReader(sys.argv[1]):
    if TCP in packet: len(packet[TCP].payload)
    count += 1
print(count)
"""
CLUSTERS = {  # by name of capture, how wire_cluster.py makes it
    "gso": ["--workload", "array:10000:1000", "--threads", "8"],
    "mtu": ["--workload", "array:10000:1000", "--threads", "8", "--mtu"],
    "veth": ["--workload", "array:3500:350", "--workers", "4", "--threads", "2", "--mtu"],
    "shuffle": ["--workload", "shuffle:24000000", "--threads", "2", "--mtu"],
    "groupby": ["--workload", "groupby:24000000", "--threads", "2", "--mtu"],
    "control": ["--workload", "tasks:22000", "--threads", "1"],
}
WARM_UP = """
import sys, mmap
memory = mmap.mmap(-1, 1 << 29)
for place in range(0, len(memory), mmap.PAGESIZE): memory[place] = 1
with open(sys.argv[1], 'rb') as file:
    while file.read(1 << 20): pass
"""
TSHARK_FIELDS = [
    "frame.time_epoch",
    "frame.len",
    "ip.src",
    "ip.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq",
    "tcp.ack",
    "tcp.len",
    "tcp.flags",
    "tcp.analysis.retransmission",
    "tcp.window_size",
]


@dataclass(frozen=True)
class Tool:
    """A program to measure: its command without the file, what follows the file, how many packets it gets
    (0: all), and where it runs.
    """

    name: str
    command: list[str]
    packets: int = 0
    after: tuple[str, ...] = ()
    folder: Path = ROOT

    def on(self, file: Path) -> Cost:
        """Run it on a file."""
        return measure([*self.command, str(file), *self.after], self.folder)


@dataclass(frozen=True)
class Cost:
    """What one run cost: seconds of CPU and of wall clock, MB of memory, and what it printed."""

    cpu_s: float
    wall_s: float
    rss_mb: float
    said: str


def tools(python: str, beside: Path | None) -> list[Tool]:
    """All tools that are installed; says which are missing."""
    fields = [a for field in TSHARK_FIELDS for a in ("-e", field)]
    wire = [sys.executable, "-c", WIRE]
    folders = {"wire": ROOT} | ({f"wire of {beside.name}": beside.resolve()} if beside else {})
    found = [
        *(Tool(name, wire, folder=folder) for name, folder in folders.items()),
        *(Tool(f"{name}, summary", wire, 0, ("all",), folder) for name, folder in folders.items()),
        Tool("tcpdump --count", ["tcpdump", "--count", "-nr"]),
        Tool("dpkt", [python, "-c", DPKT], 400_000),
        Tool("tshark", ["tshark", "-T", "fields", *fields, "-r"], 200_000),
        Tool("scapy", [python, "-c", SCAPY], 50_000),
    ]
    missing = [t.name for t in found if shutil.which(t.command[0]) is None]
    for module in ("dpkt", "scapy"):
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
            missing.append(module)
    if missing:
        print("not installed, left out:", ", ".join(missing))
    return [tool for tool in found if tool.name not in missing]


def measure(command: list[str], folder: Path = ROOT) -> Cost:
    """Run a command to its end; CPU and memory are those of that process alone."""
    begin = time.perf_counter()
    source = os.environ | {"PYTHONPATH": str(folder / "lab")}  # of that checkout, whatever is installed
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env=source
    )
    out, err = _drain(process)
    wall = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"{command[0]} failed: {err.decode()[-500:]}")
    used = _USAGE[process.pid]
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, out.decode().strip()[-400:])


def measure_warm(tool: Tool, file: Path) -> Cost:
    """Run a tool on a file that, like some free memory, was just touched."""
    measure([sys.executable, "-c", WARM_UP, str(file)])
    return tool.on(file)


_USAGE: dict[int, resource.struct_rusage] = {}


def _drain(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Read the output (keeping only its end), then collect the process with its own resource usage."""
    assert process.stdout is not None and process.stderr is not None
    tail = b""
    while chunk := process.stdout.read(1 << 16):
        tail = (tail + chunk)[-4096:]
    err = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    _USAGE[process.pid] = usage
    return tail, err


def head(path: Path, packets: int, work: Path) -> tuple[Path, int, int]:
    """The first packets of a capture as a file of its own; gives it, their number and bytes."""
    out = work / f"{path.parent.name}-{path.stem}-{packets}.pcap"
    count = size = 0
    with path.open("rb") as source, out.open("wb") as target:
        target.write(source.read(HEADER))
        while count < packets and len(record := source.read(RECORD)) == RECORD:
            data = source.read(int.from_bytes(record[8:12], "little"))
            target.write(record + data)
            count, size = count + 1, size + len(data) + RECORD
    return out, count, size


def compare(title: str, path: Path, work: Path, found: list[Tool], rounds: int) -> list[dict[str, object]]:
    """All tools on one capture, turn by turn, several rounds."""
    tiny, _, _ = head(path, 2, work)
    total = json.loads(found[0].on(path).said)["packets"]
    whole = (path, total, path.stat().st_size)
    jobs = [(tool, head(path, tool.packets, work) if 0 < tool.packets < total else whole) for tool in found]
    idle: dict[str, float] = {}
    costs: dict[str, list[Cost]] = {tool.name: [] for tool in found}
    for _ in range(rounds):
        for tool, (file, _, _) in jobs:
            idle[tool.name] = min(tool.on(tiny).cpu_s, idle.get(tool.name, math.inf))
            costs[tool.name].append(measure_warm(tool, file))
    for file in {tiny, *(file for _, (file, _, _) in jobs if file != path)}:
        file.unlink()
    rows = [_row(title, job, idle[job[0].name], costs[job[0].name]) for job in jobs]
    for which in ("wire", "wire, summary"):
        ours = next(row for row in rows if row["tool"] == which)["packets_per_cpu_s"]
        for row in rows:
            row[f"{which.replace(', ', '_')}_is_times"] = round(ours / row["packets_per_cpu_s"], 1)
    return rows


def _row(
    title: str, job: tuple[Tool, tuple[Path, int, int]], idle: float, costs: list[Cost]
) -> dict[str, Any]:
    tool, (_, packets, size) = job
    ordered = sorted(costs, key=lambda cost: cost.cpu_s)
    cpu, middle = (max(cost.cpu_s - idle, 1e-3) for cost in (ordered[0], ordered[len(ordered) // 2]))
    row: dict[str, Any] = {
        "capture": title,
        "tool": tool.name,
        "packets": packets,
        "cpu_s": round(cpu, 3),
        "startup_cpu_s": round(idle, 3),
        "packets_per_cpu_s": round(packets / cpu),
        "at_the_median": round(packets / middle),
        "mb_per_cpu_s": round(size / cpu / 1e6, 1),
        "rss_mb": round(ordered[0].rss_mb),
    }
    return row | (json.loads(ordered[0].said) if tool.command[-1] == WIRE else {})


def grow(path: Path, copies: int, out: Path) -> None:
    """A larger capture: copies whose addresses and times differ, so that all their connections are new."""
    import numpy as np
    from daskwire.file import pcap
    from daskwire.file.records import Progress
    from daskwire.file.source import map_file

    view = map_file(path)
    records = list(pcap.blocks(view, Progress()))
    offset = np.concatenate([r.offset for r in records])
    span = int(records[-1].time_ns[-1] - records[0].time_ns[0]) // 10**9 + 1
    with out.open("wb") as target:
        target.write(bytes(view[:HEADER]))
        for copy in range(copies):
            data = np.frombuffer(view, np.uint8).copy()
            ipv4 = offset[(data[offset + 12] == 8) & (data[offset + 13] == 0)]
            data[ipv4 + 28] = data[ipv4 + 32] = copy + 1  # third byte of both addresses
            seconds = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
            seconds[offset - RECORD] += np.uint32(span * copy)
            target.write(data[HEADER:].data)


def growth(path: Path, work: Path, copies: tuple[int, ...], rounds: int) -> list[dict[str, object]]:
    """CPU and memory against size; best of several rounds, start-up included."""
    rows: list[dict[str, object]] = []
    for number in copies:
        out = work / f"grown-{number}.pcap"
        grow(path, number, out)
        costs = [measure_warm(Tool("wire", [sys.executable, "-c", WIRE]), out) for _ in range(rounds)]
        best = min(costs, key=lambda cost: cost.cpu_s)
        gb = out.stat().st_size / 1e9
        row = {"gb": gb, "cpu_s": best.cpu_s, "wall_s": best.wall_s, "cpu_s_per_gb": best.cpu_s / gb}
        rows.append(
            {name: round(value, 3) for name, value in row.items()}
            | {"rss_mb": round(best.rss_mb)}
            | json.loads(best.said)
        )
        if number != copies[-1]:
            out.unlink()
    return rows


def forget(path: Path) -> None:
    """Throw a file out of the page cache."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def cold(path: Path, rounds: int) -> dict[str, object]:
    """Wall time from a cold cache, beside reading the file once and doing nothing with it; best of each."""
    commands = {
        "read_s": ["dd", f"if={path}", "of=/dev/null", "bs=4M", "status=none"],
        "wire_s": [sys.executable, "-c", WIRE, str(path)],
    }
    best = dict.fromkeys(commands, math.inf)
    for _ in range(rounds):
        for name, command in commands.items():
            forget(path)
            best[name] = min(best[name], measure(command).wall_s)
    gb = path.stat().st_size / 1e9
    row = {"gb": gb, **best, "read_gb_s": gb / best["read_s"], "times": best["wire_s"] / best["read_s"]}
    return {"file": str(path)} | {name: round(value, 2) for name, value in row.items()}


def make(work: Path, dask_python: str, wanted: list[str]) -> dict[str, Path]:
    """Captures of real clusters, those that are not there yet."""
    script = [sys.executable, str(ROOT / "benchmarks/wire_cluster.py"), "--python", dask_python]
    for name in wanted:
        if not (work / name / "capture.pcap").exists():
            subprocess.run([*script, *CLUSTERS[name], "--out", str(work / name)], check=True)
    return {name: work / name / "capture.pcap" for name in wanted}


def show(rows: list[dict[str, object]]) -> None:
    """A plain table."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print()


def main() -> None:
    """Run what was asked for and print tables; --json stores them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for captures and slices; needs 30 GB for --growth"
    )
    for name in CLUSTERS:
        parser.add_argument(f"--{name}", type=Path, help="a capture to take instead")
    parser.add_argument("--only", nargs="+", choices=list(CLUSTERS), default=list(CLUSTERS))
    parser.add_argument("--beside", type=Path, help="another checkout, whose decoder is measured too")
    parser.add_argument("--dask-python", default=sys.executable)
    parser.add_argument("--tools-python", default=sys.executable, help="interpreter that has scapy and dpkt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--growth", type=int, nargs="*", default=[], metavar="COPIES", help="sizes, in copies of --mtu"
    )
    parser.add_argument("--cold", action="store_true", help="also from a cold page cache")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    given = {name: getattr(args, name) for name in CLUSTERS if getattr(args, name)}
    captures = given or make(args.work, args.dask_python, args.only)
    found = tools(args.tools_python, args.beside)
    results: dict[str, list[dict[str, object]]] = {"compare": []}
    for name, path in captures.items():
        rows = compare(name, path, args.work, found, args.rounds)
        show(rows)
        results["compare"] += rows
    if args.growth:
        results["growth"] = growth(captures["mtu"], args.work, tuple(args.growth), args.rounds)
        show(results["growth"])
    if args.cold:
        results["cold"] = [cold(path, args.rounds) for path in captures.values()]
        show(results["cold"])
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

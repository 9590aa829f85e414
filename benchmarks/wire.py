"""Compare the speed and memory of daskwire with dpkt, Scapy, tshark and tcpdump on the same files.

The captures are made from real clusters in network namespaces (root, tcpdump, ethtool), or given:

    python benchmarks/wire.py --work /tmp/wire-bench            make the captures, run everything
    python benchmarks/wire.py --work /tmp/wire-bench --only bulk mixed tiny --live 60
    python benchmarks/wire.py --work /tmp/wire-bench --only veth shuffle --beside ../old-checkout
    python benchmarks/wire.py --gso A.pcap --mtu B.pcap --control C.pcap --work /tmp/wire-bench

The measure is user plus system time of a separate process, minus the time of the same process on a capture of
two packets (start-up and imports; the minimum of all rounds). In that time "wire" opens the file, reassembles
TCP streams and decodes every Dask message; "wire, summary" also computes everything that ``daskwire CAPTURE``
prints. "msgpack" is what ``msgpack.unpackb`` alone needs for the bodies of the same messages. dpkt and Scapy
parse each packet down to TCP, tshark prints twelve fields of each, tcpdump counts packets: none of them
reassembles streams. A rate is the number of packets divided by that time, in the best round and at the
median; "wire_is_times" compares the best rounds. The tools take turns. Slow tools get only the first part of
a file, in the first rounds; rates are per packet that they read. ``--beside`` also measures the decoder of
another checkout, in the same turns. ``--live`` pipes each capture to ``daskwire live`` again and again, and
measures its memory. At the end, a table compares the figures with the targets.

Before each run the file is read once, and memory is touched and freed. A virtual machine may have returned
both to its host (free page reporting, swapping); the first process to touch them would pay for that,
sometimes more than for its work. Scapy and dpkt run in a separate interpreter (--tools-python), because they
are not a dependency of this project.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CLUSTERS = {  # by name of capture, how wire_cluster.py makes it
    "bulk": ["--workload", "array:6062:866", "--threads", "2", "--mtu"],
    "mixed": ["--workload", "mixed:22", "--threads", "2", "--mtu"],
    "tiny": ["--workload", "tasks:2000", "--threads", "2"],
    "gso": ["--workload", "array:10000:1000", "--threads", "8"],
    "mtu": ["--workload", "array:10000:1000", "--threads", "8", "--mtu"],
    "veth": ["--workload", "array:3500:350", "--workers", "4", "--threads", "2", "--mtu"],
    "shuffle": ["--workload", "shuffle:24000000", "--threads", "2", "--mtu"],
    "groupby": ["--workload", "groupby:24000000", "--threads", "2", "--mtu"],
    "control": ["--workload", "tasks:22000", "--threads", "1"],
}

from benchmarks.support.command_line import chosen, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--work": (Path, "folder for captures and slices; needs 30 GB for --growth"),
            **{f"--{name}": (Path, "use this capture") for name in CLUSTERS},
            "--only": ([str], "make these captures"),
            "--beside": (Path, "also measure the decoder of this checkout"),
            "--dask-python": (sys.executable, "interpreter with Dask"),
            "--tools-python": (sys.executable, "interpreter with scapy and dpkt"),
            "--rounds": (3, "turns of each tool"),
            "--growth": ([int], "sizes, in copies of --mtu"),
            "--cold": (False, "also measure from a cold page cache"),
            "--live": (0.0, "feed daskwire live for so many seconds"),
            "--json": (Path, "also write the figures to this file"),
        },
        smallest="--work {folder} --control {capture} --rounds 1",
        needs=("tcpdump",),
    )

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
HEADER, RECORD = 24, 16

WIRE = """
import sys, json, io, contextlib
from daskwire import open_capture, summarise
from daskwire.terminal.printing import print_summary
capture = open_capture(sys.argv[1])
messages = capture.messages
if len(sys.argv) > 2:
    with contextlib.redirect_stdout(io.StringIO()): print_summary(capture, summarise(capture))
anon = [line.split()[1] for line in open('/proc/self/status') if line.startswith('RssAnon')][0]
print(json.dumps({'packets': capture.tally.packets, 'messages': len(messages), 'ops': len(messages.op_name),
                  'anon_mb': round(int(anon) / 1024), 'lost': int((~messages.complete).sum())}))
"""
MSGPACK = """
import sys, json, time, msgpack
from daskwire import open_capture
capture = open_capture(sys.argv[1])
messages, bodies = capture.messages, []
columns = (messages.flow, messages.position + messages.body_at, messages.body_size)
for flow, position, size in zip(*map(list, columns)):
    body = capture.conversations[flow >> 1].streams[flow & 1].read(int(position), int(size))
    if body is not None: bodies.append(bytes(body))
options = {'raw': False, 'strict_map_key': False, 'use_list': False, 'unicode_errors': 'backslashreplace'}
start_s = time.process_time()
for body in bodies: msgpack.unpackb(body, **options)
print(json.dumps({'cpu_s': time.process_time() - start_s, 'packets': capture.tally.packets,
                  'messages': len(bodies)}))
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
REPEATED = {"tiny": 600_000}  # captures that are repeated, with other addresses, to this number of packets
SLOW_ROUNDS = 2  # of tools that get only a part of the file
LIVE_MB_S = 20  # rate at which ``daskwire live`` is fed
CHUNK = 1 << 20  # bytes
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
    """A program to measure.

    Attributes:
        name: its name in the results.
        command: its command, without the file.
        packets: number of packets in the file that it gets; 0 for all.
        after: arguments after the file.
        folder: its working directory.
        measures_itself: only the CPU time that it prints counts, not that of the process.
    """

    name: str
    command: list[str]
    packets: int = 0
    after: tuple[str, ...] = ()
    folder: Path = ROOT
    measures_itself: bool = False

    def run(self, file: Path) -> Cost:
        cost = measure([*self.command, str(file), *self.after], self.folder)
        return replace(cost, cpu_s=json.loads(cost.output)["cpu_s"]) if self.measures_itself else cost


@dataclass(frozen=True)
class Cost:
    """The cost of a run: CPU and wall-clock time, maximum resident memory; and its output."""

    cpu_s: float
    wall_s: float
    rss_mb: float
    output: str


def tools(python: str, beside: Path | None) -> list[Tool]:
    """Return all installed tools, and print the missing ones."""
    fields = [a for field in TSHARK_FIELDS for a in ("-e", field)]
    wire = [sys.executable, "-c", WIRE]
    folders = {"wire": ROOT} | ({f"wire of {beside.name}": beside.resolve()} if beside else {})
    all_tools = [
        *(Tool(name, wire, folder=folder) for name, folder in folders.items()),
        *(Tool(f"{name}, summary", wire, 0, ("all",), folder) for name, folder in folders.items()),
        Tool("msgpack", [sys.executable, "-c", MSGPACK], measures_itself=True),
        Tool("tcpdump --count", ["tcpdump", "--count", "-nr"]),
        Tool("dpkt", [python, "-c", DPKT], 400_000),
        Tool("tshark", ["tshark", "-T", "fields", *fields, "-r"], 50_000),
        Tool("scapy", [python, "-c", SCAPY], 50_000),
    ]
    missing = [t.name for t in all_tools if shutil.which(t.command[0]) is None]
    for module in ("dpkt", "scapy"):
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
            missing.append(module)
    if missing:
        print(
            "not installed, omitted:",
            ", ".join(missing),
            "(pip install dpkt scapy; apt install tshark tcpdump)",
        )
    return [tool for tool in all_tools if tool.name not in missing]


def measure(command: list[str], folder: Path = ROOT) -> Cost:
    """Run a command; CPU time and memory are those of this process only."""
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
    """Run a tool on a file after touching the file and some free memory."""
    measure([sys.executable, "-c", WARM_UP, str(file)])
    return tool.run(file)


_USAGE: dict[int, resource.struct_rusage] = {}


def _drain(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Read the output (keeping only its end), then wait for the process and store its resource usage."""
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
    """Copy the first packets of a capture to a file; return it, their number and their bytes."""
    out = work / f"{path.parent.name}-{path.stem}-{packets}.pcap"
    count = size = 0
    with path.open("rb") as source, out.open("wb") as target:
        target.write(source.read(HEADER))
        while count < packets and len(record := source.read(RECORD)) == RECORD:
            data = source.read(int.from_bytes(record[8:12], "little"))
            target.write(record + data)
            count, size = count + 1, size + len(data) + RECORD
    return out, count, size


def compare(
    title: str, path: Path, work: Path, installed: list[Tool], rounds: int
) -> list[dict[str, object]]:
    """Run all tools on a capture in turn, for several rounds."""
    tiny, _, _ = head(path, 2, work)
    total = json.loads(installed[0].run(path).output)["packets"]
    whole = (path, total, path.stat().st_size)
    jobs = [
        (tool, head(path, tool.packets, work) if 0 < tool.packets < total else whole) for tool in installed
    ]
    idle: dict[str, float] = {}
    costs: dict[str, list[Cost]] = {tool.name: [] for tool in installed}
    for number in range(rounds):
        for tool, (file, _, _) in jobs:
            if tool.packets and number >= SLOW_ROUNDS:
                continue
            idle[tool.name] = min(tool.run(tiny).cpu_s, idle.get(tool.name, math.inf))
            costs[tool.name].append(measure_warm(tool, file))
    for file in {tiny, *(file for _, (file, _, _) in jobs if file != path)}:
        file.unlink()
    rows = [_row(title, job, idle[job[0].name], costs[job[0].name]) for job in jobs]
    for variant in ("wire", "wire, summary"):
        ours = next(row for row in rows if row["tool"] == variant)["packets_per_cpu_s"]
        for row in rows:
            row[f"{variant.replace(', ', '_')}_is_times"] = round(ours / row["packets_per_cpu_s"], 1)
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
    return row | (json.loads(ordered[0].output) if tool.command[-1] == WIRE else {})


class Repeated:
    """Copies of a capture, one after the other in time, each with its own addresses."""

    def __init__(self, path: Path) -> None:
        from daskwire.decoder.file import pcap
        from daskwire.decoder.file.records import Progress
        from daskwire.decoder.file.source import map_file

        self._view = map_file(path)
        records = list(pcap.blocks(self._view, Progress()))
        self._offset = np.concatenate([r.offset for r in records])
        self.header, self.packets = bytes(self._view[:HEADER]), len(self._offset)
        self._span_s = int(records[-1].time_ns[-1] - records[0].time_ns[0]) // 10**9 + 1

    def copy(self, number: int, byte: int) -> memoryview:
        """Return the records of a copy, which differs in one byte (0 to 3) of all IPv4 addresses."""
        data, offset = np.frombuffer(self._view, np.uint8).copy(), self._offset
        ipv4 = offset[(data[offset + 12] == 8) & (data[offset + 13] == 0)]
        data[ipv4 + 26 + byte] = data[ipv4 + 30 + byte] = number % 255 + 1
        seconds = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
        seconds[offset - RECORD] += np.uint32(self._span_s * number)
        return data[HEADER:].data


def grow(path: Path, copies: int, out: Path) -> None:
    """Build a larger capture of copies with different addresses and times, so that all connections differ."""
    repeated = Repeated(path)
    with out.open("wb") as target:
        target.write(repeated.header)
        for number in range(copies):
            target.write(repeated.copy(number, 2))


def growth(path: Path, work: Path, copies: tuple[int, ...], rounds: int) -> list[dict[str, object]]:
    """Measure CPU time and memory by file size: best of several rounds, including start-up."""
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
            | json.loads(best.output)
        )
        if number != copies[-1]:
            out.unlink()
    return rows


def forget(path: Path) -> None:
    """Drop a file from the page cache."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def cold(path: Path, rounds: int) -> dict[str, object]:
    """Measure wall-clock time from a cold cache, and the time to only read the file; best of each."""
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


def live(title: str, path: Path, seconds: float) -> dict[str, object]:
    """Feed ``daskwire live`` with copies of a capture at a fixed rate; return its largest memory."""
    repeated, command = Repeated(path), [sys.executable, "-m", "daskwire", "live", "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    begin, fed, number, peak = time.monotonic(), 0, 0, {"VmRSS": 0, "RssAnon": 0}
    process.stdin.write(repeated.header)
    while time.monotonic() - begin < seconds:
        part = repeated.copy(number, 1)  # the capture may have been grown
        for at in range(0, len(part), CHUNK):
            fed += process.stdin.write(part[at : at + CHUNK])
            time.sleep(max(begin + fed / (LIVE_MB_S * 1e6) - time.monotonic(), 0))
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in peak:
                    peak[name] = max(peak[name], int(value.split()[0]))
            if time.monotonic() - begin >= seconds:
                break
        number += 1
    spent = time.monotonic() - begin
    out, _ = process.communicate()
    return {
        "capture": title, "fed_mb": round(fed / 1e6), "seconds": round(spent),
        "rss_mb": round(peak["VmRSS"] / 1024), "anon_mb": round(peak["RssAnon"] / 1024),
        "last": next(line for line in out.decode().splitlines()[::-1] if "packets dropped" in line),
    }  # fmt: skip


def print_targets(rows: list[dict[str, Any]]) -> None:
    """Print the figures that have targets, as a Markdown table."""
    columns = (
        "capture", "packets", "messages", "decode, s", "x `tcpdump --count`", "summary / decode",
        "summary / msgpack", "decode: x dpkt", "summary: x dpkt", "x tshark", "memory, MB",
        "100 MB + 60 B per message",
    )  # fmt: skip
    print("", *columns, "", sep=" | ")
    print("|---" * len(columns) + "|")
    for title in dict.fromkeys(row["capture"] for row in rows):
        of = {row["tool"]: row for row in rows if row["capture"] == title}
        decode, summary, tcpdump = of["wire"], of["wire, summary"], of.get("tcpdump --count")
        dpkt, tshark = of.get("dpkt", {}), of.get("tshark", {})
        cells = (
            title, f"{decode['packets']:,}", f"{decode['messages']:,}", decode["cpu_s"],
            f"{decode['cpu_s'] / tcpdump['cpu_s']:.2f}" if tcpdump else "",
            f"{summary['cpu_s'] / decode['cpu_s']:.2f}", f"{summary['cpu_s'] / of['msgpack']['cpu_s']:.2f}",
            dpkt.get("wire_is_times", ""),
            dpkt.get("wire_summary_is_times", ""), tshark.get("wire_is_times", ""), summary["anon_mb"],
            round(100 + 60 * decode["messages"] / 1e6),
        )  # fmt: skip
        print("", *cells, "", sep=" | ")


def make(work: Path, dask_python: str, names: list[str]) -> dict[str, Path]:
    """Make the captures of real clusters that do not exist yet."""
    script = [sys.executable, str(ROOT / "benchmarks/wire_cluster.py"), "--python", dask_python]
    captures = {name: work / name / "capture.pcap" for name in names}
    for name, path in captures.items():
        if not path.exists():
            subprocess.run([*script, *CLUSTERS[name], "--out", str(path.parent)], check=True)
        if name in REPEATED:
            captures[name] = path.with_name("repeated.pcap")
            grow(path, -(-REPEATED[name] // Repeated(path).packets), captures[name])
    return captures


def print_rows(rows: list[dict[str, object]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print()


def main(args: Namespace) -> None:
    """Run the selected measurements and print tables; --json stores them."""
    names = chosen(args.only, CLUSTERS)
    args.work.mkdir(parents=True, exist_ok=True)
    existing = {name: getattr(args, name) for name in CLUSTERS if getattr(args, name)}
    captures = existing or make(args.work, args.dask_python, names)
    installed = tools(args.tools_python, args.beside)
    results: dict[str, list[dict[str, object]]] = {"compare": []}
    for name, path in captures.items():
        rows = compare(name, path, args.work, installed, args.rounds)
        print_rows(rows)
        results["compare"] += rows
    print_targets(results["compare"])
    if args.live:
        results["live"] = [live(name, path, args.live) for name, path in captures.items()]
        print_rows(results["live"])
    if args.growth:
        results["growth"] = growth(captures["mtu"], args.work, tuple(args.growth), args.rounds)
        print_rows(results["growth"])
    if args.cold:
        results["cold"] = [cold(path, args.rounds) for path in captures.values()]
        print_rows(results["cold"])
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(ARGUMENTS)

"""Benchmark ``daskwire problems`` blindly: inject faults into real clusters, and judge the answers.

    python benchmarks/wire_faults.py capture DIR [--only slow-link loss] [--levels 0 2]
    python benchmarks/wire_faults.py judge DIR

``capture`` runs a cluster in network namespaces for each fault at three severities, and healthy clusters, and
writes DIR/NAME/capture.pcap with the expected kinds in expected.json. ``judge`` gives only the captures to
daskwire and compares: the first problem must be of an expected kind; a healthy capture must have none. Needs
root, iproute2, nftables, ethtool and tcpdump.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wire_cluster import Cluster, Options, sh, stop

SECONDS = 9  # of the workload
VICTIM, PEER = "worker-2", "worker-1"
Rule = tuple[str, str, str]  # node, hook, rule of nftables
Inject = Callable[[Cluster, Any], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """A fault to inject.

    Attributes:
        name: name of the captures.
        kinds: kinds of problems that are correct answers.
        levels: the three severities, mild first.
        before: applied before the cluster starts, until it has stopped.
        during: applied for a while during the workload.
        options: changes of the cluster's options, by severity.
    """

    name: str
    kinds: tuple[str, ...]
    levels: tuple[Any, ...]
    before: Inject | None = None
    during: Inject | None = None
    options: Callable[[Any], dict[str, Any]] = field(default=lambda level: {})


def nft(cluster: Cluster, node: str, hook: str, rule: str, table: str = "fault") -> None:
    """Add a rule in a table of its own; ``hook`` is a chain's hook, or ``DEVICE ingress|egress``."""
    device, _, direction = hook.partition(" ")
    if direction:
        family, spec = "netdev", f"hook {direction} device {device}"
    else:
        family, spec = ("bridge" if node == "switch" else "inet"), f"hook {hook}"
    for command in (
        f"add table {family} {table}",
        f"add chain {family} {table} c {{ type filter {spec} priority 0 ; }}",
        f"add rule {family} {table} c {rule}",
    ):
        cluster.run_in(node, "nft", command)


def shaped(rate: Callable[[Any], list[str]]) -> Inject:
    """Shape what the victim sends with a token bucket."""

    @contextlib.contextmanager
    def inject(cluster: Cluster, level: Any) -> Iterator[None]:
        cluster.run_in(VICTIM, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *rate(level))
        yield

    return inject


@contextlib.contextmanager
def bloated(cluster: Cluster, limit: str) -> Iterator[None]:
    """Give the switch's ports to all workers a low rate and a long queue of ``limit`` bytes."""
    bucket = ["rate", "60mbit", "burst", "64kb", "limit", limit]
    for node in cluster.nodes:
        if node.startswith("worker"):
            cluster.run_in("switch", "tc", "qdisc", "add", "dev", cluster.port(node), "root", "tbf", *bucket)
    yield


def filtered(rules: Callable[[Cluster, Any], list[Rule]]) -> Inject:
    """Filter packets with nftables."""

    @contextlib.contextmanager
    def inject(cluster: Cluster, level: Any) -> Iterator[None]:
        for number, rule in enumerate(rules(cluster, level)):
            nft(cluster, *rule, f"fault{number}")
        yield

    return inject


def outage(rules: Callable[[Cluster], list[Rule]]) -> Inject:
    """Filter packets for ``level`` seconds."""

    @contextlib.contextmanager
    def inject(cluster: Cluster, level: float) -> Iterator[None]:
        for number, rule in enumerate(rules(cluster)):
            nft(cluster, *rule, f"fault{number}")
        time.sleep(level)
        for node in {node for node, _, _ in rules(cluster)}:
            cluster.run_in(node, "nft", "flush", "ruleset")
        yield

    return inject


def dropped(cluster: Cluster) -> list[Rule]:
    """Drop everything from and to the victim at the switch: its own TCP would notice local drops."""
    port = cluster.port(VICTIM)
    return [("switch", f"{port} ingress", "drop"), ("switch", f"{port} egress", "drop")]


@contextlib.contextmanager
def reordered(cluster: Cluster, level: int) -> Iterator[None]:
    """Send a share of the victim's packets through a slower link in parallel."""
    link = ["ip", "-n", cluster.switch, "link"]
    sh(*link, "add", "slow0", "type", "veth", "peer", "name", "slow1")
    sh(*link, "set", "slow1", "master", "br0", "up")
    sh(*link, "set", "slow0", "up")
    cluster.run_in("switch", "bridge", "link", "set", "dev", "slow1", "learning", "off", "flood", "off")
    bucket = ["rate", "60mbit", "burst", "1600", "limit", "400000"]
    cluster.run_in("switch", "tc", "qdisc", "add", "dev", "slow0", "root", "tbf", *bucket)
    rule = f"numgen random mod 1000 < {level} fwd to slow0"
    nft(cluster, "switch", f"{cluster.port(VICTIM)} ingress", rule)
    yield


@contextlib.contextmanager
def stopped(cluster: Cluster, level: float) -> Iterator[None]:
    """Stop the victim's process for a while."""
    process = cluster.processes[VICTIM]
    process.send_signal(signal.SIGSTOP)
    time.sleep(level)
    process.send_signal(signal.SIGCONT)
    yield


@contextlib.contextmanager
def killed(cluster: Cluster, level: float) -> Iterator[None]:
    """Kill the victim's process; its host refuses connections from then on."""
    time.sleep(level)
    cluster.processes[VICTIM].kill()
    yield


@contextlib.contextmanager
def cut_off(cluster: Cluster, level: float) -> Iterator[None]:
    """Cut the victim's host off for good: nobody learns that its process has ended."""
    time.sleep(level)
    for number, rule in enumerate(dropped(cluster)):
        nft(cluster, *rule, f"fault{number}")
    cluster.processes[VICTIM].kill()
    yield


@contextlib.contextmanager
def intruder(cluster: Cluster, level: float) -> Iterator[None]:
    """Give another host the victim's address; it announces it every ``level`` seconds."""
    name = f"{cluster.tag}-intruder"
    sh("ip", "netns", "add", name)
    try:
        link = ["ip", "-n", cluster.switch, "link"]
        sh(*link, "add", "pi", "type", "veth", "peer", "name", "eth0", "netns", name)
        sh(*link, "set", "pi", "master", "br0", "up")
        sh("ip", "-n", name, "addr", "add", f"{cluster.nodes[VICTIM]}/24", "dev", "eth0")
        sh("ip", "-n", name, "link", "set", "eth0", "up")
        announce = [sys.executable, __file__, "announce", cluster.nodes[VICTIM], "--every", str(level)]
        process = subprocess.Popen(["ip", "netns", "exec", name, *announce])
        time.sleep(4)
        stop(process)
        yield
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def announce(address: str, every_s: float) -> None:
    """Broadcast gratuitous ARP for an address."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind(("eth0", 0))
    mac, ip = raw.getsockname()[4], socket.inet_aton(address)
    arp = struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 2, mac, ip, b"\xff" * 6, ip)
    while True:
        raw.send(b"\xff" * 6 + mac + b"\x08\x06" + arp)
        time.sleep(every_s)


def second_network(cluster: Cluster, rate: str, nodes: tuple[str, ...]) -> None:
    """Connect nodes to a second bridge, with addresses in 10.88.7.0/24 and a slow link."""
    link = ["ip", "-n", cluster.switch, "link"]
    sh(*link, "add", "br1", "type", "bridge")
    sh(*link, "set", "br1", "up")
    for node in nodes:
        port, namespace = f"q{list(cluster.nodes).index(node)}", cluster.namespace(node)
        sh(*link, "add", port, "type", "veth", "peer", "name", "eth1", "netns", namespace)
        sh(*link, "set", port, "master", "br1", "up")
        address = cluster.nodes[node].replace("10.99.7", "10.88.7")
        sh("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth1")
        sh("ip", "-n", namespace, "link", "set", "eth1", "up")
        for name in ("all", "eth0", "eth1"):
            cluster.run_in(node, "sysctl", "-qw", f"net.ipv4.conf.{name}.rp_filter=0")
        if rate:
            cluster.run_in(
                node, "tc", "qdisc", "add", "dev", "eth1", "root", "tbf", "rate", rate, "burst", "64kb",
                "latency", "50ms",
            )  # fmt: skip


@contextlib.contextmanager
def asymmetric(cluster: Cluster, level: tuple[str, ...]) -> Iterator[None]:
    """Route what some nodes send to the victim over a second bridge, which is not captured."""
    second_network(cluster, "", (*level, VICTIM))
    for node in level:
        route = [f"{cluster.nodes[VICTIM]}/32", "via", cluster.nodes[VICTIM].replace("10.99.7", "10.88.7")]
        sh("ip", "-n", cluster.namespace(node), "route", "add", *route, "dev", "eth1")
    yield


@contextlib.contextmanager
def management_network(cluster: Cluster, level: str) -> Iterator[None]:
    """Let the victim announce its address on a second, slower network, which the others reach as well."""
    second_network(cluster, level, tuple(cluster.nodes))
    cluster.listen[VICTIM] = cluster.nodes[VICTIM].replace("10.99.7", "10.88.7")
    yield


def oversized(cluster: Cluster, level: int) -> list[Rule]:
    """Drop the victim's packets to a peer that are larger than ``level`` bytes."""
    rule = f"ip saddr {cluster.nodes[VICTIM]} meta length > {level} drop"
    return [(PEER, "eth0 ingress", rule)]


def lossy(cluster: Cluster, level: tuple[int, str]) -> list[Rule]:
    """Drop a share of the packets, from the victim (before the capture point) or to it (behind it)."""
    per_mille, side = level
    hook = ("switch", f"{cluster.port(VICTIM)} ingress") if side == "before" else (VICTIM, "eth0 ingress")
    return [(*hook, f"numgen random mod 1000 < {per_mille} drop")]


def refusing(cluster: Cluster) -> list[Rule]:
    """Let the scheduler's host reset the victim's connections."""
    rule = f"ip saddr {cluster.nodes[VICTIM]} tcp dport 8786 reject with tcp reset"
    return [("scheduler", "input", rule)]


def silent(cluster: Cluster) -> list[Rule]:
    """Drop all SYNs to the victim."""
    return [(VICTIM, "input", "tcp flags & (syn|ack) == syn drop")]


def blocked(node: str) -> Callable[[Any], dict[str, Any]]:
    """Block an event loop for ``level`` seconds, several times."""
    return lambda level: {"env": {"WIRE_BLOCK": f"{node}:{level}:{max(1, int(4 / level))}"}}


def mtu(_: Any) -> dict[str, Any]:
    return {"mtu": True}


FAULTS = (
    Fault("slow-link", ("slow link",), ("80mbit", "30mbit", "8mbit"),
          before=shaped(lambda rate: ["rate", rate, "burst", "64kb", "latency", "20ms"])),
    Fault("loss", ("loss",), ((5, "before"), (20, "behind"), (50, "before")), before=filtered(lossy),
          options=mtu),
    Fault("reordering", ("reordering",), (20, 60, 200), before=reordered, options=mtu),
    Fault("mtu-black-hole", ("MTU black hole",), (1400, 1200, 600),
          before=filtered(oversized), options=mtu),
    Fault("duplicate-ip", ("duplicate IP",), (3.0, 1.0, 0.3), during=intruder),
    Fault("asymmetric-path", ("asymmetric path",),
          ((PEER,), (PEER, "worker-3"), (PEER, "worker-3", "scheduler")), before=asymmetric),
    Fault("half-open", ("half-open connection",), (4.0, 2.0, 0.5), during=cut_off),
    Fault("reset", ("mid-stream reset",), (0.05, 0.3, 1.0), during=outage(refusing)),
    Fault("zero-window", ("zero window", "blocked worker loop"), (1.5, 3.0, 6.0), during=stopped),
    Fault("delayed-acks", ("delayed ACKs",), (1, 1, 1), options=lambda _: {"env": {"WIRE_NAGLE": "1"}}),
    Fault("bufferbloat", ("bufferbloat",), ("1000000", "3000000", "8000000"),
          before=bloated, options=lambda _: {"workload": "array:4000:500"}),
    Fault("time-outs", ("retransmission time-outs",), (1.0, 2.0, 4.0), during=outage(dropped)),
    Fault("refused", ("refused connects", "mid-stream reset"), (2.0, 1.0, 0.2), during=killed),
    Fault("unanswered", ("unanswered connects",), (2.0, 4.0, 7.0), during=outage(silent),
          options=lambda _: {"env": {"WIRE_RECONNECT": "1"}}),
    Fault("wrong-interface", ("wrong interface",), ("100mbit", "30mbit", "8mbit"),
          before=management_network, options=lambda _: {"interface": "any"}),
    Fault("scheduler-loop", ("slow scheduler loop",), (0.7, 1.5, 4.0), options=blocked("scheduler")),
    Fault("late-heartbeats", ("late heartbeats",), (4, 8, 16),
          options=lambda level: {"env": {"WIRE_HEARTBEAT": str(level)}}),
    Fault("worker-loop", ("blocked worker loop", "zero window"), (1.5, 3.0, 6.0), options=blocked(VICTIM)),
    Fault("tls", ("TLS without keys",), (1, 2, 3), options=lambda _: {"protocol": "tls"}),
    Fault("capture-point", ("wrong capture point",), ("p0", "p2", "p3"),
          options=lambda port: {"interface": port}),
)  # fmt: skip
HEALTHY: dict[str, dict[str, Any]] = {
    "mixed": {}, "mixed-mtu": {"mtu": True}, "mixed-4": {"workers": 4},
    "array": {"workload": "array:4000:500"},
    "array-mtu": {"workload": "array:3000:500", "mtu": True}, "tasks": {"workload": "tasks:3000"},
    "shuffle": {"workload": "shuffle:2400000"}, "groupby": {"workload": "groupby:2400000", "mtu": True},
    "one-worker": {"workers": 1}, "websocket": {"protocol": "ws"},
}  # fmt: skip


def record(out: Path, kinds: tuple[str, ...], fault: Fault | None, level: Any, **changes: Any) -> None:
    """Run a cluster with a fault under tcpdump, and note the expected kinds."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    cluster = Cluster(Options(out, **{"workload": f"mixed:{SECONDS}", "timeout_s": SECONDS + 200, **changes}))
    with cluster.network(), contextlib.ExitStack() as stack:
        if fault and fault.before:
            stack.enter_context(fault.before(cluster, level))
        dumper = cluster.start_tcpdump()
        try:
            cluster.start_cluster()
            client = cluster.start_node("client", cluster.options.workload)
            if fault and fault.during:
                while not (out / "client.running").exists() and client.poll() is None:
                    time.sleep(0.1)
                time.sleep(1)
                with fault.during(cluster, level):
                    client.wait(cluster.options.timeout_s)
            client.wait(cluster.options.timeout_s)
            time.sleep(0.3)
        finally:
            cluster.stop_cluster()
            time.sleep(1.5)
            stop(dumper, signal.SIGINT)
    if cluster.options.workload.startswith("mixed") and not (out / "client.running").exists():
        print(f"{out.name}: the workload did not start", file=sys.stderr)
        return
    (out / "expected.json").write_text(json.dumps({"kinds": kinds, "level": str(level)}))


def record_all(folder: Path, only: list[str], levels: list[int]) -> None:
    """Make the captures that do not exist yet."""
    for fault in FAULTS:
        for number in levels:
            out = folder / f"{fault.name}-{number}"
            if (not only or fault.name in only) and not (out / "expected.json").exists():
                level = fault.levels[number]
                print(out.name, flush=True)
                record(out, fault.kinds, fault, level, **fault.options(level))
    for name, changes in HEALTHY.items():
        out = folder / f"healthy-{name}"
        if (not only or "healthy" in only) and not (out / "expected.json").exists():
            print(out.name, flush=True)
            record(out, (), None, None, **changes)


def judge(folder: Path) -> bool:
    """Compare the first problem of each capture with the expected kinds; print a table."""
    rows = []
    for expected in sorted(folder.glob("*/expected.json")):
        kinds = json.loads(expected.read_text())["kinds"]
        command = [
            sys.executable,
            "-m",
            "daskwire",
            "problems",
            "--json",
            str(expected.with_name("capture.pcap")),
        ]
        output = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        problems = [row["problem"] for row in output["rows"] if row["severity"] == "problem"]
        correct = (problems[:1] == []) if not kinds else bool(problems) and problems[0] in kinds
        rows.append((expected.parent.name, correct, ", ".join(problems[:3]) or "no problem"))
    for name, correct, answer in rows:
        print(f"{'ok   ' if correct else 'WRONG'} {name:22} {answer}")
    faults = [correct for name, correct, _ in rows if not name.startswith("healthy")]
    healthy = [correct for name, correct, _ in rows if name.startswith("healthy")]
    print(f"\nfaults: first problem correct in {sum(faults)} of {len(faults)} captures")
    print(f"healthy: no false alarm in {sum(healthy)} of {len(healthy)} captures")
    return all(healthy) and sum(faults) >= 0.9 * len(faults)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    capture = commands.add_parser("capture", help="make the captures")
    capture.add_argument("folder", type=Path)
    capture.add_argument("--only", nargs="+", default=[])
    capture.add_argument("--levels", nargs="+", type=int, default=[0, 1, 2])
    judging = commands.add_parser("judge", help="compare the answers of daskwire")
    judging.add_argument("folder", type=Path)
    announcing = commands.add_parser("announce", help="(used by the benchmark itself)")
    announcing.add_argument("address")
    announcing.add_argument("--every", type=float, default=1.0)
    args = parser.parse_args()
    if args.command == "capture":
        record_all(args.folder.resolve(), args.only, args.levels)
    elif args.command == "announce":
        announce(args.address, args.every)
    elif not judge(args.folder):
        sys.exit(1)


if __name__ == "__main__":
    main()

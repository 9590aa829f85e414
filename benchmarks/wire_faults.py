"""Benchmark ``daskwire problems`` blindly: inject faults into real clusters, and judge the answers.

    python benchmarks/wire_faults.py capture DIR --seed 7 [--only slow-link loss] [--levels 0 2]
    python benchmarks/wire_faults.py judge DIR

``capture`` runs a cluster in network namespaces for each fault at three severities, and healthy clusters, and
writes DIR/NAME/capture.pcap with the expected kinds and nodes in expected.json. The seed selects the nodes,
the severities within their range, and the healthy workloads, so captures with a new seed are blind.
``judge`` gives only the captures to daskwire and compares: the first problem must be of an expected kind, and
of several faults each must have a row; a healthy capture must have none. A healthy cluster whose network
dropped or delayed packets was none: it is made again, at most MAX_TRIES times, and else left out, whatever
daskwire says of it. Needs root, iproute2, nftables, ethtool and tcpdump.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "command": (
                ("capture", "judge", "both"),
                "make the captures, or compare the answers of daskwire",
            ),
            "folder": (Path, "of the captures"),
            "--only": ([str], "these faults"),
            "--levels": ([int], "severities; 0, 1 and 2 if none is named"),
            "--seed": (1, "determines what is chosen at random"),
            "--parallel": (1, "captures at a time"),
        },
        smallest="both {folder} --only far-worker --levels 2",
        needs=("root", "ip", "nft", "ethtool", "tcpdump"),
    )

from daskwire.analysis.problems.detect import Answer

from benchmarks.wire_cluster import OFFLOADS, Cluster, Options, sh, stop

SECONDS = 9  # of the workload
FORWARDED_WINDOW = 64 << 10  # largest receive window if a program forwards the packets, bytes
MAX_LATE_MS = 20.0  # a program that holds a frame for longer than it should is a queue
MAX_TRIES = 3
PATIENCE_S = 60.0  # of a healthy workload: on a slow network, its last round takes long
MATCH_TIMEOUT_S = 5.0  # a heartbeat is due within this time
SPREAD = 1.2  # severities are multiplied by a random factor of at most this
UNJUDGEABLE = ("TLS without keys",)  # first problems of captures of which nothing is known
FORWARDER = "forwarder-"
INTERFERENCE = [sys.executable, str(Path(__file__).parent / "support" / "interference.py")]
Rule = tuple[str, str, str]  # node, hook, rule of nftables


class Target(Cluster):
    """A cluster with a fault at one of its workers, the victim, or between it and a peer."""

    victim = "worker-2"
    peer = "worker-1"


Inject = Callable[[Target, Any], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """A fault to inject.

    Attributes:
        name: name of the captures.
        kinds: kinds of problems that are correct answers.
        levels: the three severities, mild first.
        node: the node that a correct answer names, empty for any.
        before: applied before the cluster starts, until it has stopped.
        during: applied for a while during the workload.
        options: changes of the cluster's options, by severity and victim.
        also: kinds of which there must be a problem as well, since there are several faults.
    """

    name: str
    kinds: tuple[str, ...]
    levels: tuple[Any, ...]
    node: str = "victim"
    before: Inject | None = None
    during: Inject | None = None
    options: Callable[[Any, str], dict[str, Any]] = field(default=lambda level, victim: {})
    also: tuple[str, ...] = ()


def nft(cluster: Target, node: str, hook: str, rule: str, table: str = "fault") -> None:
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
    def inject(cluster: Target, level: Any) -> Iterator[None]:
        cluster.run_in(cluster.victim, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *rate(level))
        yield

    return inject


@contextlib.contextmanager
def shaped_download(cluster: Target, mbit: float) -> Iterator[None]:
    """Shape what the victim receives with a token bucket at the switch."""
    bucket = ["rate", f"{mbit}mbit", "burst", "64kb", "latency", "20ms"]
    cluster.run_in(
        "switch", "tc", "qdisc", "add", "dev", cluster.port(cluster.victim), "root", "tbf", *bucket
    )
    yield


@contextlib.contextmanager
def two_links(cluster: Target, level: tuple[float, float]) -> Iterator[None]:
    """Shape what the victim sends, and drop a share of the packets to its peer."""
    mbit, per_mille = level
    rule = f"numgen random mod 1000 < {round(per_mille)} drop"
    nft(cluster, cluster.peer, "eth0 ingress", rule)
    with shaped(lambda rate: ["rate", f"{rate}mbit", "burst", "64kb", "latency", "20ms"])(cluster, mbit):
        yield


@contextlib.contextmanager
def forgotten(cluster: Target, level: float) -> Iterator[None]:
    """Drop what arrives on the connections between the victim and other workers at either end.

    New connections work. Behind the capture point, the packets of both directions are captured.
    """
    time.sleep(level)
    for node in workers(cluster):
        if node == cluster.victim:
            continue
        address = cluster.nodes[node]
        listed = cluster.run_in(cluster.victim, "ss", "-Htn", "state", "established", f"dst {address}")
        for number, line in enumerate(listed.splitlines()):
            own, other = (end.rsplit(":", 1)[1] for end in line.split()[-2:])
            table = f"{node.replace('-', '')}n{number}"
            nft(cluster, cluster.victim, "eth0 ingress", f"tcp sport {other} tcp dport {own} drop", table)
            nft(cluster, node, "eth0 ingress", f"tcp sport {own} tcp dport {other} drop", table)
    yield


@contextlib.contextmanager
def forwarded(cluster: Target, nodes: list[str], delay_ms: float = 0, repeated: float = 0) -> Iterator[None]:
    """Insert a program into the links of some nodes, which delays or repeats their packets."""
    link, processes = ["ip", "-n", cluster.switch, "link"], []
    window = f"4096 {FORWARDED_WINDOW} {FORWARDED_WINDOW}"
    for node in cluster.nodes:
        # Who leaves checksums to the device sends them wrong through a raw socket.
        cluster.run_in(node, "ethtool", "-K", "eth0", "tx", "off")
        # A program forwards less than a device, so a large window would fill a long queue before it.
        cluster.run_in(node, "sysctl", "-qw", f"net.ipv4.tcp_rmem={window}")
    for node in nodes:
        port = cluster.port(node)
        sh(*link, "add", f"{port}f", "type", "veth", "peer", "name", f"{port}b")
        for device in (f"{port}f", f"{port}b"):
            cluster.run_in("switch", "ethtool", "-K", device, *OFFLOADS)
            sh(*link, "set", device, "up")
        sh(*link, "set", port, "nomaster", "promisc", "on")
        sh(*link, "set", f"{port}b", "master", "br0")
        report = str(cluster.options.out / f"{FORWARDER}{node}.json")
        command = ["ip", "netns", "exec", cluster.switch, *INTERFERENCE, "forward"]
        processes.append(subprocess.Popen([*command, port, f"{port}f", report, str(delay_ms), str(repeated)]))
    try:
        yield
    finally:
        for process in processes:
            stop(process)


@contextlib.contextmanager
def far(cluster: Target, delay_ms: float) -> Iterator[None]:
    """Put the victim far away from all others."""
    with forwarded(cluster, [cluster.victim], delay_ms):
        yield


@contextlib.contextmanager
def wan(cluster: Target, delay_ms: float) -> Iterator[None]:
    """Put all workers equally far away."""
    with forwarded(cluster, workers(cluster), delay_ms):
        yield


@contextlib.contextmanager
def repeated(cluster: Target, share: float) -> Iterator[None]:
    """Repeat a share of the workers' packets in both directions: a program before one is a slow link."""
    with forwarded(cluster, workers(cluster), repeated=share):
        yield


def workers(cluster: Target) -> list[str]:
    return [node for node in cluster.nodes if node.startswith("worker")]


@contextlib.contextmanager
def relayed(cluster: Target, port: int) -> Iterator[None]:
    """Let the client reach the scheduler through a TCP relay on the victim's host."""
    with relay_for(cluster, "client", cluster.victim, port, cluster.nodes["scheduler"]):
        yield


@contextlib.contextmanager
def silent_proxy(cluster: Target, port: str) -> Iterator[None]:
    """Let the victim reach the scheduler through a proxy without a backend: it accepts, and never answers."""
    with relay_for(cluster, cluster.victim, cluster.peer, int(port), ""):
        yield


@contextlib.contextmanager
def relay_for(cluster: Target, node: str, host: str, port: int, target: str) -> Iterator[None]:
    """Let a node reach the scheduler through a TCP relay on the host of another one."""
    cluster.contact[node] = f"{cluster.nodes[host]}:{port}"
    command = [*INTERFERENCE, "relay", str(port), target]
    process = subprocess.Popen(["ip", "netns", "exec", cluster.namespace(host), *command])
    try:
        yield
    finally:
        stop(process)


@contextlib.contextmanager
def killed_node(cluster: Target, level: float, node: str) -> Iterator[None]:
    time.sleep(level)
    cluster.processes[node].kill()
    time.sleep(8)
    yield


@contextlib.contextmanager
def killed_scheduler(cluster: Target, level: float) -> Iterator[None]:
    with killed_node(cluster, level, "scheduler"):
        yield


@contextlib.contextmanager
def killed_client(cluster: Target, level: float) -> Iterator[None]:
    with killed_node(cluster, level, "client"):
        yield


@contextlib.contextmanager
def loopback(cluster: Target, level: str) -> Iterator[None]:
    """Let some workers announce an address that only they can reach."""
    for number in range(int(level)):
        cluster.listen[f"worker-{number + 1}"] = f"127.0.0.{number + 1}"
    yield


@contextlib.contextmanager
def bloated(cluster: Target, limit: float) -> Iterator[None]:
    """Give the switch's ports to all workers a low rate and a long queue of ``limit`` bytes."""
    bucket = ["rate", "20mbit", "burst", "64kb", "limit", str(round(limit))]
    for node in workers(cluster):
        cluster.run_in("switch", "tc", "qdisc", "add", "dev", cluster.port(node), "root", "tbf", *bucket)
    yield


def filtered(rules: Callable[[Target, Any], list[Rule]]) -> Inject:
    """Filter packets with nftables."""

    @contextlib.contextmanager
    def inject(cluster: Target, level: Any) -> Iterator[None]:
        for number, rule in enumerate(rules(cluster, level)):
            nft(cluster, *rule, f"fault{number}")
        yield

    return inject


def has_matched(cluster: Target, node: str) -> bool:
    """Return whether a packet met a rule with a counter."""
    return bool(re.search(r"counter packets [1-9]", cluster.run_in(node, "nft", "list", "ruleset")))


def outage(rules: Callable[[Target], list[Rule]]) -> Inject:
    """Filter packets for ``level`` seconds, and until one was met: else there was no fault."""

    @contextlib.contextmanager
    def inject(cluster: Target, level: float) -> Iterator[None]:
        for number, rule in enumerate(rules(cluster)):
            nft(cluster, *rule, f"fault{number}")
        time.sleep(level)
        nodes, give_up = {node for node, _, _ in rules(cluster)}, time.monotonic() + MATCH_TIMEOUT_S
        while not any(has_matched(cluster, node) for node in nodes) and time.monotonic() < give_up:
            time.sleep(0.01)
        for node in nodes:
            cluster.run_in(node, "nft", "flush", "ruleset")
        yield

    return inject


def dropped(cluster: Target) -> list[Rule]:
    """Drop everything from and to the victim at the switch: its own TCP would notice local drops."""
    port = cluster.port(cluster.victim)
    return [("switch", f"{port} {direction}", "counter drop") for direction in ("ingress", "egress")]


def detour(cluster: Target, match: str, mbit: float, burst: str) -> None:
    """Send the matching packets of the victim through a slower link in parallel."""
    link = ["ip", "-n", cluster.switch, "link"]
    sh(*link, "add", "slow0", "type", "veth", "peer", "name", "slow1")
    sh(*link, "set", "slow1", "master", "br0", "up")
    sh(*link, "set", "slow0", "up")
    cluster.run_in("switch", "bridge", "link", "set", "dev", "slow1", "learning", "off", "flood", "off")
    bucket = ["rate", f"{mbit}mbit", "burst", burst, "limit", "400000"]
    cluster.run_in("switch", "tc", "qdisc", "add", "dev", "slow0", "root", "tbf", *bucket)
    nft(cluster, "switch", f"{cluster.port(cluster.victim)} ingress", f"{match} fwd to slow0")


@contextlib.contextmanager
def reordered(cluster: Target, level: float) -> Iterator[None]:
    """Send a share of the victim's packets through a slower link in parallel."""
    detour(cluster, f"numgen random mod 1000 < {round(level)}", 60, "1600")
    yield


@contextlib.contextmanager
def slow_pair(cluster: Target, level: float) -> Iterator[None]:
    """Send what the victim sends to its peer through a slow link."""
    detour(cluster, f"ip daddr {cluster.nodes[cluster.peer]}", level, "64kb")
    yield


@contextlib.contextmanager
def stopped(cluster: Target, level: float) -> Iterator[None]:
    """Stop the victim's process for a while."""
    process = cluster.processes[cluster.victim]
    process.send_signal(signal.SIGSTOP)
    time.sleep(level)
    process.send_signal(signal.SIGCONT)
    yield


@contextlib.contextmanager
def killed(cluster: Target, level: float) -> Iterator[None]:
    """Kill the victim's process; its host refuses connections from then on."""
    time.sleep(level)
    cluster.processes[cluster.victim].kill()
    yield


@contextlib.contextmanager
def cut_off(cluster: Target, level: float) -> Iterator[None]:
    """Cut the victim's host off for good: nobody learns that its process has ended."""
    time.sleep(level)
    for number, rule in enumerate(dropped(cluster)):
        nft(cluster, *rule, f"fault{number}")
    cluster.processes[cluster.victim].kill()
    yield


@contextlib.contextmanager
def intruder(cluster: Target, level: float) -> Iterator[None]:
    """Give another host the victim's address; it announces it every ``level`` seconds."""
    name = f"{cluster.tag}-intruder"
    sh("ip", "netns", "add", name)
    try:
        link = ["ip", "-n", cluster.switch, "link"]
        sh(*link, "add", "pi", "type", "veth", "peer", "name", "eth0", "netns", name)
        sh(*link, "set", "pi", "master", "br0", "up")
        sh("ip", "-n", name, "addr", "add", f"{cluster.nodes[cluster.victim]}/24", "dev", "eth0")
        sh("ip", "-n", name, "link", "set", "eth0", "up")
        announce = [*INTERFERENCE, "announce", cluster.nodes[cluster.victim], str(level)]
        process = subprocess.Popen(["ip", "netns", "exec", name, *announce], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # the first announcement was sent
        time.sleep(4)
        stop(process)
        yield
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def second_network(cluster: Target, rate_mbit: float, nodes: tuple[str, ...]) -> None:
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
        if rate_mbit:
            bucket = ["rate", f"{rate_mbit}mbit", "burst", "64kb", "latency", "50ms"]
            cluster.run_in(node, "tc", "qdisc", "add", "dev", "eth1", "root", "tbf", *bucket)


@contextlib.contextmanager
def asymmetric(cluster: Target, level: str) -> Iterator[None]:
    """Route what some nodes send to the victim over a second bridge, which is not captured."""
    others = [node for node in workers(cluster) if node != cluster.victim]
    nodes = [*others, "scheduler"][: int(level)]
    second_network(cluster, 0, (*nodes, cluster.victim))
    for node in nodes:
        route = [
            f"{cluster.nodes[cluster.victim]}/32",
            "via",
            cluster.nodes[cluster.victim].replace("10.99.7", "10.88.7"),
        ]
        sh("ip", "-n", cluster.namespace(node), "route", "add", *route, "dev", "eth1")
    yield


@contextlib.contextmanager
def management_network(cluster: Target, level: float) -> Iterator[None]:
    """Let the victim announce its address on a second, slower network, which the others reach as well."""
    second_network(cluster, level, tuple(cluster.nodes))
    cluster.listen[cluster.victim] = cluster.nodes[cluster.victim].replace("10.99.7", "10.88.7")
    yield


def oversized(cluster: Target, level: float) -> list[Rule]:
    """Drop the victim's packets to a peer that are larger than ``level`` bytes."""
    rule = f"ip saddr {cluster.nodes[cluster.victim]} meta length > {round(level)} drop"
    return [(cluster.peer, "eth0 ingress", rule)]


def lossy(cluster: Target, level: tuple[float, str]) -> list[Rule]:
    """Drop a share of the packets, from the victim (before the capture point) or to it (behind it)."""
    per_mille, side = level
    hook = (
        ("switch", f"{cluster.port(cluster.victim)} ingress")
        if side == "before"
        else (cluster.victim, "eth0 ingress")
    )
    return [(*hook, f"numgen random mod 1000 < {round(per_mille)} drop")]


def refusing(cluster: Target) -> list[Rule]:
    """Let the scheduler's host reset the victim's connections."""
    rule = f"ip saddr {cluster.nodes[cluster.victim]} tcp dport 8786 counter reject with tcp reset"
    return [("scheduler", "input", rule)]


def some_syns(cluster: Target, percent: float) -> list[Rule]:
    """Drop a share of the SYNs to the victim."""
    rule = f"tcp flags & (syn|ack) == syn numgen random mod 100 < {round(percent)} drop"
    return [(cluster.victim, "input", rule)]


def rejecting(how: str) -> Callable[[Target], list[Rule]]:
    """Reject all SYNs to the victim."""
    rule = f"tcp flags & (syn|ack) == syn counter reject with {how}"
    return lambda cluster: [(cluster.victim, "input", rule)]


def silent(cluster: Target) -> list[Rule]:
    """Drop all SYNs to the victim."""
    return [(cluster.victim, "input", "tcp flags & (syn|ack) == syn counter drop")]


def blocked(level: float, node: str) -> dict[str, Any]:
    """Block an event loop for ``level`` seconds, several times."""
    return {"env": {"WIRE_BLOCK": f"{node}:{level}:{max(1, int(4 / level))}"}}


def mtu(*_: Any) -> dict[str, Any]:
    return {"mtu": True}


FAULTS = (
    Fault("slow-link", ("slow link",), (80, 30, 8),
          before=shaped(lambda mbit: ["rate", f"{mbit}mbit", "burst", "64kb", "latency", "20ms"])),
    Fault("slow-pair", ("slow link",), (60, 25, 8), before=slow_pair),
    Fault("loss", ("loss",), ((5, "before"), (20, "behind"), (50, "before")), before=filtered(lossy),
          options=mtu),
    Fault("reordering", ("reordering",), (20, 60, 200), before=reordered, options=mtu),
    Fault("mtu-black-hole", ("MTU black hole",), (1200, 1000, 600),
          during=filtered(oversized), options=mtu),
    Fault("duplicate-ip", ("duplicate IP",), (3.0, 1.0, 0.3), during=intruder),
    Fault("asymmetric-path", ("asymmetric path",), ("1", "2", "3"), before=asymmetric),
    Fault("half-open", ("half-open connection",), (4.0, 2.0, 0.5), during=cut_off),
    Fault("reset", ("mid-stream reset",), (0.05, 0.3, 1.0), during=outage(refusing)),
    Fault("zero-window", ("zero window", "blocked worker loop"), (1.5, 3.0, 6.0), during=stopped),
    Fault("delayed-acks", ("delayed ACKs",), (0.3, 0.6, 1.0), "",
          options=lambda share, _: {"env": {"WIRE_NAGLE": str(share)}}),
    Fault("websocket", ("delayed ACKs",), ("1", "2", "3"), "",  # Dask leaves Nagle's algorithm on
          options=lambda workers, _: {"protocol": "ws", "workers": int(workers)}),
    Fault("bufferbloat", ("bufferbloat",), (1e6, 3e6, 8e6), "",
          before=bloated),
    Fault("time-outs", ("retransmission time-outs",), (1.0, 2.0, 4.0), during=outage(dropped)),
    Fault("killed", ("lost worker", "refused connects", "mid-stream reset"), (2.0, 1.0, 0.2), during=killed),
    Fault("unanswered", ("unanswered connects",), (2.0, 4.0, 7.0), during=outage(silent),
          options=lambda *_: {"env": {"WIRE_RECONNECT": "1"}}),
    Fault("wrong-interface", ("wrong interface",), (100, 30, 8),
          before=management_network, options=lambda *_: {"interface": "any"}),
    Fault("scheduler-loop", ("slow scheduler loop",), (0.7, 1.5, 4.0), "scheduler",
          options=lambda level, _: blocked(level, "scheduler")),
    Fault("late-heartbeats", ("late heartbeats",), (4, 8, 16), "",
          options=lambda level, _: {"env": {"WIRE_HEARTBEAT": str(level)}}),
    Fault("worker-loop", ("blocked worker loop", "zero window"), (1.5, 3.0, 6.0), options=blocked),
    Fault("tls", ("TLS without keys",), ("1", "2", "3"), "",
          options=lambda workers, _: {"protocol": "tls", "workers": int(workers)}),
    Fault("capture-point", ("wrong capture point",), ("p0", "p2", "p3"), "",
          options=lambda port, _: {"interface": port}),
    Fault("capture-loss", ("incomplete capture",), ("0x3f", "0x0f", "0x03"), "",  # of IP identifications
          options=lambda mask, _: {"filter": f"not ip or ip[4:2] & {mask} != 0"}),
    Fault("slow-download", ("slow link",), (80, 30, 8), before=shaped_download),
    Fault("two-links", ("slow link", "loss"), ((30, 20), (15, 30), (8, 50)), "", before=two_links,
          options=mtu, also=("slow link", "loss")),
    Fault("forgotten", ("half-open connection",), (2.0, 1.0, 0.2), during=forgotten),
    Fault("syn-loss", ("unanswered connects",), (40, 50, 60), before=filtered(some_syns),
          options=lambda *_: {"env": {"WIRE_RECONNECT": "1"}}),
    Fault("rejected", ("refused connects",), (2.0, 4.0, 6.0), during=outage(rejecting("tcp reset")),
          options=lambda *_: {"env": {"WIRE_RECONNECT": "1"}}),
    Fault("prohibited", ("ICMP errors",), (2.0, 4.0, 6.0),
          during=outage(rejecting("icmp type admin-prohibited")),
          options=lambda *_: {"env": {"WIRE_RECONNECT": "1"}}),
    Fault("scheduler-killed", ("lost scheduler",), (2.0, 1.0, 0.2), "scheduler", during=killed_scheduler),
    Fault("client-killed", ("lost client",), (2.0, 1.0, 0.2), "client", during=killed_client,
          options=lambda *_: {"env": {"WIRE_PAUSE": "0"}}),  # between computations, nothing is lost
    Fault("loopback", ("unreachable address",), ("1", "2", "3"), "", before=loopback),
    Fault("far-worker", ("far worker",), (20, 40, 80), before=far, options=mtu),
    Fault("silent-proxy", ("unanswered handshake",), ("9001", "9002", "9003"), before=silent_proxy,
          options=lambda *_: {"env": {"WIRE_WORKERS": "2"}}),
    Fault("standstill", ("standstill",), (("resource", 8), ("pause", 10), ("pause", 16)), "",
          options=lambda level, _: {"env": {"WIRE_STANDSTILL": f"{level[0]}:{level[1]}"}}),
    Fault("snaplen", ("incomplete capture",), (500, 250, 100), "",
          options=lambda size, _: {"snaplen": round(size)}),
)  # fmt: skip


def healthy(chance: random.Random) -> dict[str, dict[str, Any]]:
    """Return the options of healthy clusters, and what is done to their network without harm."""

    def array(sizes: range) -> str:
        return f"array:{chance.choice(sizes)}:500"

    frame = chance.randrange(1_500_000, 3_500_000)
    return {
        "mixed": {}, "mixed-mtu": {"mtu": True}, "mixed-4": {"workers": 4},
        "array": {"workload": array(range(3000, 5000, 500))},
        "array-mtu": {"workload": array(range(2500, 4000, 500)), "mtu": True},
        "tasks": {"workload": f"tasks:{chance.randrange(2000, 5000)}"},
        "shuffle": {"workload": f"shuffle:{frame}"}, "groupby": {"workload": f"groupby:{frame}", "mtu": True},
        "one-worker": {"workers": 1, "threads": chance.choice((1, 2, 4))}, "one-thread": {"threads": 1},
        "restart": {"sessions": 2}, "tls-keys": {"protocol": "tls", "keys": True},
        "relay": {"before": relayed, "level": 9999}, "idle": {"workload": "tasks:5"},
        "wan": {"before": wan, "level": chance.uniform(5, 15), "mtu": True},
        "duplicates": {"before": repeated, "level": 0.1, "mtu": True},
    }  # fmt: skip


def varied(level: Any, chance: random.Random) -> Any:
    """Multiply the numbers of a severity by a random factor."""
    if isinstance(level, tuple):
        return tuple(varied(part, chance) for part in level)
    if isinstance(level, str):
        return level
    return round(level * SPREAD ** chance.uniform(-1, 1), 3)


def flaws(cluster: Target) -> list[str]:
    """Return what the network of a cluster did to its packets, apart from a fault."""
    defects = []
    for node in (*cluster.nodes, "switch"):
        for device in json.loads(cluster.run_in(node, "ip", "-j", "-s", "link")):
            if dropped := sum(device["stats64"][side]["dropped"] for side in ("rx", "tx")):
                defects.append(f"{node}'s {device['ifname']} dropped {dropped} packets")
    for path in sorted(cluster.options.out.glob(f"{FORWARDER}*.json")):
        report = json.loads(path.read_text())
        if report["lost"] or report["late_ms"] > MAX_LATE_MS:
            defects.append(
                f"{path.stem} lost {report['lost']} frames, and one was {report['late_ms']} ms late"
            )
    log = (cluster.options.out / "tcpdump.log").read_text()
    if dropped_by_tcpdump := re.search(r"([1-9]\d*) packets? dropped by kernel", log):
        defects.append(f"tcpdump lost {dropped_by_tcpdump[1]} packets")
    return defects


def record(
    out: Path, fault: Fault | None, level: Any, chance: random.Random, changes: dict[str, Any]
) -> list[str]:
    """Run a cluster with a fault under tcpdump, and note the expected kinds and node.

    Return the flaws of a healthy one.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    victim, peer = chance.sample([f"worker-{number}" for number in (1, 2, 3)], 2)
    before, sessions, has_keys = fault.before if fault else None, 1, False
    if fault:
        changes = fault.options(level, victim)
    else:
        changes = {"env": {"WIRE_PATIENCE": str(PATIENCE_S)}, **changes}
        before, level = changes.pop("before", None), changes.pop("level", None)
        sessions, has_keys = changes.pop("sessions", 1), changes.pop("keys", False)
    options = Options(out, **{"workload": f"mixed:{SECONDS}", "timeout_s": SECONDS + 200, **changes})
    cluster = Target(options, f"wire{os.getpid()}-{out.name}")
    cluster.victim, cluster.peer = victim, peer
    with cluster.network():
        with contextlib.ExitStack() as stack:
            if before:
                stack.enter_context(before(cluster, level))
            dumper = cluster.start_tcpdump()
            try:
                for _ in range(sessions - 1):
                    cluster.start_cluster()
                    cluster.start_node("client", "array:1000:500").wait(cluster.options.timeout_s)
                    cluster.stop_cluster()
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
        defects = [] if fault else flaws(cluster)
    needs_work = not fault or fault.during is not None  # else the fault may stop the cluster at once
    has_worked = (out / "client.running").exists() or not cluster.options.workload.startswith("mixed")
    if needs_work and not has_worked:
        print(f"{out.name}: the workload did not start", file=sys.stderr)
        return defects
    node = victim if fault and fault.node == "victim" else fault.node if fault else ""
    expected: dict[str, Any] = {
        "kinds": fault.kinds if fault else (),
        "also": fault.also if fault else (),
        "node": node,
        "address": cluster.nodes.get(node, ""),  # a worker that never joined has no name
    }
    expected |= {"level": str(level), "keys": has_keys, "flaws": defects}
    (out / "expected.json").write_text(json.dumps(expected))
    return defects


def record_healthy(out: Path, seed: int, changes: dict[str, Any]) -> None:
    """Record a healthy cluster until its network had no flaws."""
    for _ in range(MAX_TRIES):
        chance = random.Random(f"{seed} {out.name.removeprefix('healthy-')}")
        defects = record(out, None, None, chance, changes)
        if not defects:
            return
        print(f"{out.name} was not healthy: {'; '.join(defects)}", flush=True)


def record_all(folder: Path, only: list[str], levels: list[int], seed: int, parallel: int) -> None:
    """Make the captures that do not exist yet, some at a time."""
    with ThreadPoolExecutor(parallel) as pool:
        jobs = []
        for fault in FAULTS:
            for number in levels:
                out = folder / f"{fault.name}-{number}"
                if (not only or fault.name in only) and not (out / "expected.json").exists():
                    chance = random.Random(f"{seed} {out.name}")
                    level = varied(fault.levels[number], chance)
                    print(out.name, level, flush=True)
                    jobs.append(pool.submit(record, out, fault, level, chance, {}))
        for name, changes in healthy(random.Random(seed)).items():
            out = folder / f"healthy-{name}"
            if (not only or {"healthy", out.name} & set(only)) and not (out / "expected.json").exists():
                print(out.name, changes, flush=True)
                jobs.append(pool.submit(record_healthy, out, seed, changes))
        for job in jobs:
            job.result()


def judge(folder: Path) -> bool:
    """Compare the first problem of each capture with the expected kinds; print a table."""
    rows: list[tuple[str, bool, bool]] = []
    silent_costs = unjudged = left_out = 0
    for path in sorted(folder.glob("*/expected.json")):
        expected, name = json.loads(path.read_text()), path.parent.name
        if expected.get("flaws"):
            print(f"left out {name}: {'; '.join(expected['flaws'])}")
            left_out += 1
            continue
        command = [
            sys.executable,
            "-m",
            "daskwire",
            "problems",
            "--json",
            str(path.with_name("capture.pcap")),
            *(["--key-log", str(path.with_name("keys.log"))] if expected.get("keys") else []),
        ]
        output = json.loads(subprocess.run(command, check=False, capture_output=True, text=True).stdout)
        problems = [row for row in output["rows"] if row["severity"] == "problem"]
        first = problems[0] if problems else {"problem": "no problem", "source": "", "destination": ""}
        correct = first["problem"] in (expected["kinds"] or ["no problem"])
        correct = correct and set(expected.get("also", ())) <= {row["problem"] for row in problems}
        silent_costs += bool(expected["kinds"]) and output["answer"] == Answer.NO_PROBLEM.value
        unjudged += output["answer"] == Answer.NOTHING_TO_JUDGE.value and first["problem"] not in UNJUDGEABLE
        nodes = {"", first["source"], first["destination"]}
        rows.append((name, correct, correct and bool({expected["node"], expected["address"]} & nodes)))
        answer = "; ".join(
            f"{row['problem']} {row['source']}>{row['destination']} {row['cost_s']}" for row in problems[:3]
        )
        expectation = (
            f"  (level {expected['level']}, {expected['node'] or 'any node'})" if expected["kinds"] else ""
        )
        print(f"{'ok   ' if correct else 'WRONG'} {name:22} {answer or 'no problem'}{expectation}")
    faults = [row for row in rows if not row[0].startswith("healthy")]
    clean = [row for row in rows if row[0].startswith("healthy")]
    right = sum(correct for _, correct, _ in faults)
    print(f"\nfaults: first problem correct in {right} of {len(faults)} captures")
    print(f"node: also correct in {sum(located for _, _, located in faults)} of them")
    print(f'"no problem found" for {silent_costs} faults, a wrong "nothing to judge" for {unjudged} captures')
    print(f"healthy: no false alarm in {sum(correct for _, correct, _ in clean)} of {len(clean)} captures")
    print(f"left out, since the benchmark's own network dropped or delayed packets: {left_out}")
    return all(correct for _, correct, _ in clean) and right >= 0.9 * len(faults)


def main(args: Namespace) -> None:
    if args.command in ("capture", "both"):
        record_all(args.folder.resolve(), args.only, args.levels or [0, 1, 2], args.seed, args.parallel)
    if args.command in ("judge", "both") and not judge(args.folder):
        sys.exit(1)


if __name__ == "__main__":
    main(ARGUMENTS)
